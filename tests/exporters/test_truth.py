"""What is shown, against the simulated driver's own books.

The short samples tolerate a machine that is slow; the whole holds the promised figures over longer runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nvshare.workloads.run import SMALL_N
from tests.exporters.node import MetricsNode, Pod, Scrape, metrics_node
from tests.noise import despite_noise

MATRIX = 6000
"""About a millisecond an addition on the simulated card."""


def occupied(scrape: Scrape, pods: list[Pod]) -> list[float]:
    return [scrape.value("nvshare_pod_gpu_occupied_seconds_total", pod=pod.name) for pod in pods]


def busy_sec(node: MetricsNode, pods: list[Pod]) -> list[float]:
    by_pid = {process.pid: process.busy_ns / 1e9 for process in node.card().processes}
    return [by_pid[pod.process.pid] for pod in pods]


def seconds_of_both(
    node: MetricsNode, pods: list[Pod], seconds: float
) -> tuple[list[float], list[float], float]:
    """What we counted and what the driver counted for each pod in the meantime, and for the card."""
    card_before = node.card()
    ours, driver = occupied(node.scrape(), pods), busy_sec(node, pods)
    time.sleep(seconds)  # the measurement itself
    card_after = node.card()
    ours_after, driver_after = occupied(node.scrape(), pods), busy_sec(node, pods)
    card_sec = (card_after.busy_ns - card_before.busy_ns) / 1e9
    return (
        [after - before for after, before in zip(ours_after, ours, strict=True)],
        [after - before for after, before in zip(driver_after, driver, strict=True)],
        card_sec,
    )


@contextmanager
def in_turns(place: Path) -> Iterator[Callable[[float, float], None]]:
    """W2 itself: what its process takes to launch and to wake up is small beside its kernels."""
    with metrics_node(place) as node:
        pods = []
        for percent in (30, 60):
            node.daemon.set_quota(f"p{percent}", core_percent=percent)
            pods.append(node.pod(f"p{percent}", size=SMALL_N))
        time.sleep(1)  # both have had turns

        def check(seconds: float, rel: float) -> None:
            ours, driver, _ = seconds_of_both(node, pods, seconds)
            assert ours == pytest.approx(driver, rel=rel)

        yield check


@contextmanager
def together(place: Path) -> Iterator[Callable[[float, float], None]]:
    with metrics_node(place) as node:
        pods = [node.pod(f"free-{number}", size=MATRIX) for number in range(2)]
        time.sleep(1)  # both are at work

        def check(seconds: float, rel: float) -> None:
            ours, _, card_sec = seconds_of_both(node, pods, seconds)
            assert sum(ours) == pytest.approx(card_sec, rel=rel)

        yield check


def test_memory_to_the_byte(place: Path) -> None:
    with metrics_node(place, "t4:2") as node:
        pods = [
            node.pod(f"p{number}", card=number % 2, size=1000 + 100 * number, work=False)
            for number in range(4)
        ]
        scrape = node.wait_scrape(
            lambda s: (
                sum(sample.value for sample in s.of("nvshare_gpu_process_count")) == 4
                and all(sample.value for sample in s.of("nvshare_client_nvml_used_bytes"))
            )
        )
        driver = {p.pid: p for card in node.sim.status().cards for p in card.processes}
        for number, pod in enumerate(pods):
            shown = scrape.value(
                "nvshare_client_nvml_used_bytes", pod=pod.name, host_pid=str(pod.process.pid)
            )
            managed = scrape.value("nvshare_client_managed_allocated_bytes", pod=pod.name)
            assert shown == driver[pod.process.pid].used_bytes
            assert managed == 4 * 4 * (1000 + 100 * number) ** 2
            assert scrape.value("nvshare_client_memory_need_upper_bytes", pod=pod.name) == managed + shown
            baseline = scrape.value("nvshare_client_memory_overhead_baseline_bytes", pod=pod.name)
            assert 256 << 20 <= baseline <= 4 << 30
            assert (
                scrape.value("nvshare_client_memory_need_estimated_bytes", pod=pod.name) == managed + baseline
            )
        for card in node.sim.status().cards:
            assert scrape.value("nvshare_gpu_memory_used_bytes", gpu_uuid=card.uuid) == card.used_bytes


def test_occupied_in_exclusive_turns(place: Path) -> None:
    with in_turns(place) as check:
        despite_noise(lambda: check(4, 0.15))


@pytest.mark.verify
def test_occupied_in_exclusive_turns_within_1_percent(place: Path) -> None:
    with in_turns(place) as check:
        check(30, 0.01)


def test_gpu_time_of_tenants_that_run_together(place: Path) -> None:
    with together(place) as check:
        despite_noise(lambda: check(4, 0.15))


@pytest.mark.verify
def test_gpu_time_of_pods_that_run_together_is_within_2_percent(place: Path) -> None:
    with together(place) as check:
        check(30, 0.02)


def test_utilisation_follows_within_two_samples(node: MetricsNode) -> None:
    """NVML looks back half a second. Of the samples after that is full of work the second must show it."""
    pod = node.pod("p", size=MATRIX, work=False)
    idle = node.wait_scrape(lambda s: bool(s.of("nvshare_gpu_utilization_ratio")))
    assert idle.value("nvshare_gpu_utilization_ratio") < 0.5
    pod.work()
    busy_ns = node.card().busy_ns
    while node.card().busy_ns - busy_ns < 700_000_000:
        time.sleep(0.01)
    full = time.monotonic()

    def taken_after_sec(scrape: Scrape) -> float:
        age_sec = scrape.value("nvshare_snapshot_age_seconds", source=node.card().uuid)
        return time.monotonic() - age_sec - full

    second = node.wait_scrape(lambda s: taken_after_sec(s) > 0.1)
    assert second.value("nvshare_gpu_utilization_ratio") > 0.8
    assert second.value("nvshare_client_sm_utilization_ratio") > 0.5
