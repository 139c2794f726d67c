"""With scheduling off clients run without asking: what is shown is true, what is not known is left out."""

from __future__ import annotations

import time
from pathlib import Path

from nvshare.core import events
from nvshare.exporters.scheduler.activity import Activity
from tests.core.model import Model
from tests.exporters.node import MetricsNode, metrics_node
from tests.exporters.test_truth import MATRIX
from tests.node.harness import T, gpu_key

MS = 1_000_000
LAST_KERNEL = "nvshare_pod_last_kernel_timestamp_seconds"
UNKNOWN = ("nvshare_scheduler_running_clients", "nvshare_scheduler_running_memory_bytes")


def turn(node: MetricsNode, on: bool) -> float:
    node.daemon.control.ask("PUT", "/v1/scheduling", {"on": on})
    return time.time()


def test_a_busy_pod_is_neither_idle_nor_frozen(node: MetricsNode) -> None:
    node.pod("busy", size=MATRIX)
    node.wait_scrape(lambda s: s.value("nvshare_scheduler_running_clients") == 1)
    node.wait_scrape(lambda s: s.value(LAST_KERNEL, pod="busy") > 0)
    off_sec = turn(node, on=False)
    scrape = node.wait_scrape(lambda s: s.value(LAST_KERNEL, pod="busy") > off_sec + 1)
    assert scrape.value("nvshare_scheduler_on") == 0
    assert [name for name in UNKNOWN if scrape.of(name)] == []
    assert scrape.value("nvshare_scheduler_request_queue_clients") == 0, "nobody waits, which is known"
    page = node.get("/")[2].decode()
    assert "Scheduling is off: all run ungated." in page
    assert "<td>ungated</td>" in page
    assert "idle" not in page
    control = node.daemon.control
    assert [row["state"] for row in control.ask("GET", "/v1/clients")["clients"]] == ["ungated"]
    [gpu] = control.ask("GET", "/v1/gpus")["gpus"]
    assert (gpu["running_clients"], gpu["running_bytes"]) == (None, None)
    [tenant] = control.ask("GET", "/v1/tenants/busy")["tenants"]
    assert tenant["explanation"]["remedy"] == "nothing: scheduling is off: it runs ungated"
    turn(node, on=True)
    back = node.wait_scrape(lambda s: bool(s.of(UNKNOWN[0])) and s.value(UNKNOWN[0]) == 1)
    assert back.value(LAST_KERNEL, pod="busy") >= scrape.value(LAST_KERNEL, pod="busy")


def test_without_nvml_nobody_knows_when_a_pod_last_worked(place: Path) -> None:
    with metrics_node(place, LD_LIBRARY_PATH="", NVSHARE_SIM="") as node:
        client = node.daemon.client("p", gpu_key())
        client.lock()
        client.send(T.TURN_ENDED, arguments=(MS, 0, MS, 0, 0, MS))
        client.round_trip()
        assert node.scrape().value(LAST_KERNEL, pod="p") > 0
        turn(node, on=False)
        scrape = node.scrape()
        assert scrape.of(LAST_KERNEL) == []
        assert scrape.value("nvshare_pod_last_seen_timestamp_seconds", pod="p") > 0
        turn(node, on=True)
        assert node.scrape().value(LAST_KERNEL, pod="p") > 0


def test_explained_as_ungated_since_it_was_turned_off() -> None:
    model = Model()
    key = model.register("a")
    model.pass_time(5_000_000)
    model.step(events.SchedulingSet(False))
    off_ns = model.now_ns
    model.pass_time(5_000_000)
    [tenant] = model.core.snapshot(model.now_ns).gpus[0].tenants
    assert tenant.clients[0].client == key
    assert tenant.clients[0].state == "ungated"
    assert (tenant.explanation.state, tenant.explanation.reason) == ("ungated", "off")
    assert tenant.explanation.since_ns == off_ns
    model.step(events.SchedulingSet(True))
    [tenant] = model.core.snapshot(model.now_ns).gpus[0].tenants
    assert (tenant.explanation.state, tenant.clients[0].state) == ("idle", "idle")


def test_activity_keeps_present_pods_and_recently_departed_ones() -> None:
    activity = Activity()
    for pod, sm_percent, taken_ns in (("a", 7, 10), ("a", 7, 5), ("a", 0, 99), ("b", 3, 10), ("c", None, 10)):
        activity.note(pod, sm_percent, taken_ns)
    activity.note("d", 1, 50)
    list(activity.forget(20, {"a"}.__contains__))
    assert activity.worked_ns() == {"a": 10, "d": 50}
