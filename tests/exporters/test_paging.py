"""What the driver takes is known even while clients' memory does not fit on the GPU."""

from __future__ import annotations

import pytest

from nvshare.exporters.scheduler.paging import Look, Paging
from tests.exporters.node import free_port
from tests.local.harness import node_up, wait_until
from tests.local.test_oversubscribed import PODS, QUEUES_ALL_IT_CAN, start

GPU = "GPU-a"
MIB = 1 << 20


def paged_out_bytes(paging: Paging, looks: list[Look], fits: bool) -> int:
    steps = paging.paged_out_bytes(GPU, looks, fits)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return int(end.value)


def test_paged_out_is_what_nvml_does_not_count() -> None:
    paging = Paging()
    first = Look(1, 1000, 1100)
    for _ in range(2):
        assert paged_out_bytes(paging, [first], fits=True) == 0, "all is there, and 100 are the driver's"
    second = Look(2, 1000, 100)
    assert paged_out_bytes(paging, [first, second], fits=False) == 1000, "as it is with the first"
    paged = [Look(1, 1000, 600), Look(2, 1000, 1120)]
    assert paged_out_bytes(paging, paged, fits=False) == 500
    assert paged_out_bytes(paging, [Look(1, 1000, 1050)], fits=False) == 50, "it only rises meanwhile"
    assert paged_out_bytes(paging, [Look(1, 1000, 1050)], fits=True) == 0, "but all of it is there now"


def test_figures_of_different_moments_teach_nothing() -> None:
    paging = Paging()
    paged_out_bytes(paging, [Look(1, 1000, 1100)], fits=True)
    paged_out_bytes(paging, [Look(1, 10, 1100)], fits=True)  # freed since NVML looked
    assert paged_out_bytes(paging, [Look(1, 1000, 900)], fits=False) == 100
    assert paged_out_bytes(paging, [], fits=True) == 0
    assert paged_out_bytes(paging, [Look(1, 1000, 900)], fits=False) == 100, "who is gone is forgotten"


@pytest.mark.parametrize("pods", [PODS[:1], PODS], ids=["alone", "together"])
def test_contexts_are_taken_off_the_safe_limit(pods: tuple[str, ...]) -> None:
    settings = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_NVML_INTERVAL_MS": "100"}
    address = f"127.0.0.1:{free_port()}"
    with node_up("--sim", "t4:1", NVSHARE_METRICS_ADDR=address, **settings) as place:
        start(place, pods, QUEUES_ALL_IT_CAN)

        def shown() -> tuple[int, int]:
            [gpu] = place.control.ask("GET", "/v1/gpus")["gpus"]
            return gpu["stranger_bytes"], gpu["safe_limit_bytes"]

        [card] = place.cards()
        contexts = sum(process.context_bytes for process in card.processes)
        assert contexts == len(pods) * 104 * MIB
        limit = card.total_bytes * 9 // 10
        wait_until(lambda: shown() == (contexts, limit - contexts), f"{contexts} bytes are the driver's")
