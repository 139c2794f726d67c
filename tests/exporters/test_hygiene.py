"""No ghost series, no missing ones: pods come and go, GPUs are lost and return, NVML goes and comes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from nvshare.sim.gpu import SimulatedNode
from nvshare.wire.messages import MessageType
from tests.exporters.node import MetricsNode, Scrape, metrics_node
from tests.node.harness import Raw, in_child

T = MessageType
TENANTS = 200
RETURN = ("REGISTER", "RESUME", "RESUMED")


def come(node: MetricsNode, count: int) -> list[int]:
    """Tenants in processes of their own, each with a turn behind it; their pids, when all are registered."""
    uuid = node.card().uuid
    pids = []
    for number in range(count):
        reading, writing = os.pipe()

        def act(name: str = f"guest-{number}", told: int = writing) -> None:
            client = Raw(node.daemon.path)
            client.register(name, uuid)
            client.cycle()
            client.round_trip()
            os.write(told, b"x")
            signal.pause()

        pids.append(in_child(act))
        os.close(writing)
        assert os.read(reading, 1) == b"x"
        os.close(reading)
    return pids


def go(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_200_tenants_come_and_go(place: Path) -> None:
    with metrics_node(place, NVSHARE_METRICS_STALE_TTL_SEC="1") as node:
        before = node.wait_scrape(lambda s: bool(s.of("nvshare_gpu_info")))
        guests = come(node, TENANTS)
        during = node.scrape()
        assert len(during.of("nvshare_client_info")) == TENANTS
        assert len(during.of("nvshare_pod_gpu_occupied_seconds_total")) == TENANTS
        go(guests)
        node.daemon.wait_status(lambda status: status["clients"] == 0)
        after = node.scrape()
        assert after.series("nvshare_client_") == before.series("nvshare_client_") == set()
        assert after.value("nvshare_scheduler_client_disconnect_total", reason="ended") == TENANTS
        node.wait_scrape(lambda s: s.series() == before.series())


def test_totals_of_a_pod_stay_for_a_while_and_go_on_when_it_is_back(node: MetricsNode) -> None:
    uuid = node.card().uuid
    [pid] = come(node, 1)
    labels = {"namespace": "default", "pod": "guest-0"}
    here = node.scrape()
    seen_sec = here.value("nvshare_pod_last_seen_timestamp_seconds", **labels)
    grants = here.value("nvshare_pod_gpu_lock_wait_seconds_count", gpu_uuid=uuid, **labels)
    assert grants == 1
    go([pid])
    node.daemon.wait_status(lambda status: status["clients"] == 0)
    gone = node.scrape()
    assert gone.of("nvshare_client_info") == []
    left_sec = gone.value("nvshare_pod_last_seen_timestamp_seconds", **labels)
    assert left_sec >= seen_sec
    assert gone.value("nvshare_pod_gpu_lock_wait_seconds_count", **labels) == grants
    assert node.scrape().value("nvshare_pod_last_seen_timestamp_seconds", **labels) <= left_sec + 0.01
    # The core forgets the tenant a second after it was idle; its totals outlive that.
    node.wait_scrape(lambda _: not node.daemon.control.ask("GET", "/v1/gpus")["gpus"][0]["tenants"])
    assert node.scrape().value("nvshare_pod_gpu_lock_wait_seconds_count", **labels) == grants
    [pid] = come(node, 1)
    back = node.scrape()
    assert back.value("nvshare_pod_gpu_lock_wait_seconds_count", **labels) == grants + 1
    go([pid])


def test_totals_and_ids_survive_a_restart_of_the_daemon(place: Path) -> None:
    with metrics_node(place) as node:
        uuid = node.card().uuid
        gone = come(node, 1)
        labels = {"pod": "guest-0", "gpu_uuid": uuid}
        name = "nvshare_pod_gpu_lock_wait_seconds_count"
        go(gone)
        here = node.daemon.client("here", uuid)
        here.cycle()
        here.round_trip()
        # Until the tenant itself is forgotten, a second after it was idle, and after that.
        for times in (1, 2):
            before = node.scrape()
            assert before.value(name, **labels) == 1
            node.daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
            node.daemon.kill()
            node.daemon.start()
            after = node.scrape()
            assert after.value(name, **labels) == 1
            last_seen = ("nvshare_pod_last_seen_timestamp_seconds", {"pod": "guest-0"})
            assert after.value(last_seen[0], **last_seen[1]) == pytest.approx(
                before.value(last_seen[0], **last_seen[1]), abs=0.1
            )
            back = node.daemon.connect()
            assert back.resume(here).type is T.RESUMED
            assert back.client_id == here.client_id, "its series go on"
            here = back
            scrape = node.wait_scrape(lambda s: bool(s.of("nvshare_client_info", pod="here")))
            [info] = scrape.of("nvshare_client_info", pod="here")
            assert int(info.labels["client_id"], 16) == here.client_id
            messages = {kind: scrape.value("nvshare_scheduler_messages_total", type=kind) for kind in RETURN}
            assert messages == {"REGISTER": 0, "RESUME": 1, "RESUMED": 1}
            assert scrape.value("nvshare_scheduler_clients") == 1
            if times == 1:
                node.wait_scrape(lambda _: len(tenants(node)) == 1)
        [pid] = come(node, 1)
        assert node.scrape().value(name, **labels) == 2, "it goes on where it was"
        go([pid])


def tenants(node: MetricsNode) -> list[object]:
    found: list[object] = node.daemon.control.ask("GET", "/v1/gpus")["gpus"][0]["tenants"]
    return found


def gpu_series(scrape: Scrape, uuid: str) -> set[str]:
    return {line for line in scrape.series() if uuid in line}


def test_a_lost_gpu_ends_its_series_and_returns(place: Path) -> None:
    with metrics_node(place, "t4:2") as node:
        lost, kept = (card.uuid for card in node.sim.status().cards)
        before = node.wait_scrape(lambda s: len(s.of("nvshare_gpu_info")) == 2)
        assert before.value("nvshare_source_up", source=lost) == 1
        node.sim.fault("lost", "0")
        after = node.wait_scrape(lambda s: s.value("nvshare_source_up", source=lost) == 0)
        told = {
            f'nvshare_source_{name}{{source="{lost}"}}' for name in ("up", "hangs_total", "failures_total")
        }
        labels = f'{{gpu_uuid="{lost}",gpu_index="0"}}'
        told |= {f"nvshare_gpu_xid_errors_total{labels}", f"nvshare_gpu_last_xid{labels}"}
        assert gpu_series(after, lost) == told
        # Falling off the bus is an XID event of its own, and who watches has to see it while the GPU is away.
        seen = node.wait_scrape(lambda s: s.value("nvshare_gpu_xid_errors_total", gpu_uuid=lost) == 1)
        assert seen.value("nvshare_gpu_last_xid", gpu_uuid=lost) == 79
        assert seen.value("nvshare_source_up", source=lost) == 0
        assert gpu_series(after, kept) == gpu_series(before, kept)
        node.daemon.wait_words("a GPU cannot be read: its figures are missing source=gpu-0")
        assert after.value("nvshare_nvml_up") == after.value("nvshare_source_up", source=kept) == 1
        node.sim.fault("back", "0")
        back = node.wait_scrape(lambda s: s.value("nvshare_source_up", source=lost) == 1)
        assert gpu_series(back, lost) == gpu_series(before, lost)
        node.daemon.wait_words("GPU figures are back source=gpu-0")
        assert back.value("nvshare_gpu_xid_errors_total", gpu_uuid=lost) == 1, "the same one"


def test_nvml_goes_and_comes_without_a_restart(node: MetricsNode) -> None:
    uuid = node.card().uuid
    before = node.wait_scrape(lambda s: bool(s.of("nvshare_gpu_info")))
    energy = before.value("nvshare_gpu_energy_joules_total")
    for fault, end in (("nvml-down", "nvml-up"), ("driver-restart", None)):
        node.sim.fault(fault)
        if end:
            down = node.wait_scrape(lambda s: s.value("nvshare_nvml_up") == 0)
            assert not down.series("nvshare_gpu_")
            assert down.series("nvshare_scheduler_") == before.series("nvshare_scheduler_")
            assert down.value("nvshare_source_up", source=uuid) == 0
            node.daemon.wait_words("NVML does not answer: GPU figures are missing")
            node.sim.fault(end)
        up = node.wait_scrape(lambda s: s.value("nvshare_nvml_up") == 1 and bool(s.of("nvshare_gpu_info")))
        assert up.series() == before.series()
        assert up.value("nvshare_gpu_energy_joules_total") >= energy, "counters never go back"
        energy = up.value("nvshare_gpu_energy_joules_total")


def test_nvml_that_answers_only_later_is_found(place: Path) -> None:
    SimulatedNode(place / "sim", "t4:2").fault("nvml-down")
    with metrics_node(place, "t4:2") as node:
        assert node.wait_scrape(lambda s: s.value("nvshare_nvml_up") == 0).of("nvshare_gpu_info") == []
        assert node.scrape().of("nvshare_scheduler_running_clients") == []
        node.sim.fault("nvml-up")
        scrape = node.wait_scrape(lambda s: len(s.of("nvshare_scheduler_running_clients")) == 2)
        cards = {card.uuid: str(card.index) for card in node.sim.status().cards}
        shown = scrape.of("nvshare_scheduler_running_clients")
        assert {s.labels["gpu_uuid"]: s.labels["gpu_index"] for s in shown} == cards
        node.daemon.client("by-index", "1")
        [client] = node.scrape().of("nvshare_client_info", pod="by-index")
        assert client.labels["gpu_uuid"] == node.card(1).uuid
        assert client.labels["gpu_index"] == "1"


def test_a_list_of_gpus_has_nvmls_numbers(place: Path) -> None:
    spec = "t4:3"
    sim = SimulatedNode(place / "sim", spec)
    uuids = [card.uuid for card in sim.status().cards]
    with metrics_node(place, spec, NVSHARE_GPUS=f"{uuids[2]}=8Gi,{uuids[0]}=4Gi") as node:
        shown = {uuids[0]: "0", uuids[2]: "2"}
        scrape = node.wait_scrape(
            lambda s: (
                {
                    x.labels["gpu_uuid"]: x.labels["gpu_index"]
                    for x in s.of("nvshare_scheduler_running_clients")
                }
                == shown
            )
        )
        limits = {
            x.labels["gpu_uuid"]: x.value for x in scrape.of("nvshare_scheduler_memory_safe_limit_bytes")
        }
        assert limits[uuids[0]] < 4 << 30 < limits[uuids[2]] < 8 << 30, "the list's sizes stay"
        node.daemon.client("by-index", "2")
        [client] = node.scrape().of("nvshare_client_info", pod="by-index")
        assert client.labels["gpu_uuid"] == uuids[2]


def test_a_driver_that_hangs_at_the_start_does_not_keep_the_daemon_from_starting(place: Path) -> None:
    SimulatedNode(place / "sim", "t4:1").fault("hang", "nvmlDeviceGetMemoryInfo")
    with metrics_node(place) as node:
        uuid = node.card().uuid
        node.wait_scrape(lambda s: bool(s.of("nvshare_nvml_up")) and s.of("nvshare_gpu_info") == [])
        node.sim.fault("unhang")
        node.wait_scrape(lambda s: bool(s.of("nvshare_scheduler_running_clients", gpu_uuid=uuid)))


def test_memory_of_strangers_reaches_the_scheduler(node: MetricsNode) -> None:
    node.wait_scrape(lambda s: bool(s.of("nvshare_gpu_info")))
    limit = node.scrape().value("nvshare_scheduler_memory_safe_limit_bytes")
    outsider = node.outsider()
    scrape = node.wait_scrape(lambda s: s.value("nvshare_scheduler_stranger_memory_bytes") > 60 << 20)
    strangers = scrape.value("nvshare_scheduler_stranger_memory_bytes")
    assert scrape.value("nvshare_scheduler_memory_safe_limit_bytes") == limit - strangers
    outsider.kill()
    node.wait_scrape(lambda s: s.value("nvshare_scheduler_stranger_memory_bytes") == 0)
