"""NVML as nvidia-ml-py reads it, against the driver's own count."""

from __future__ import annotations

import os
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20
PROGRAMS = Path(__file__).parent / "programs"


def holding(sim: Any, *before: str, **extra: str) -> Any:
    child = sim.start(*before, sys.executable, str(PROGRAMS / "hold.py"), **extra)
    assert child.stdout.readline() == "holding\n"
    return child


def test_every_figure_of_an_idle_card(make_sim: Any) -> None:
    sim = make_sim("t4:1,a800:2")
    report = sim.script("read_nvml.py", "1")
    card = sim.card(1)
    assert report["count"] == 3
    assert report["driver"].count(".") == 2
    assert report["nvml"].endswith(report["driver"])
    assert report["cuda"] == 13000
    assert report["name"] == card.name
    assert report["uuid"] == card.uuid
    assert report["index"] == report["minor"] == report["by_uuid"] == report["by_pci"] == 1
    assert report["pci"] == ["00000000:02:00.0", 2]
    assert report["memory"] == report["memory_v2"] == [40 << 30, 40 << 30, 0]
    assert report["utilisation"] == [0, 0]
    assert report["v1"] == report["v2"] == report["v3"] == report["graphics"] == {}
    assert report["process_utilisation"] == {}
    assert (report["celsius"], report["milliwatts"], report["limit"]) == (32, 45000, 250000)
    assert (report["sm_clock"], report["memory_clock"], report["throttle"]) == (210, 210, 1)
    assert report["ecc"] == [0, 0]
    assert report["mig"] == [0, 0]
    assert report["multiprocessors"] == 108


def test_memory_of_a_process_to_the_byte(sim: Any) -> None:
    child = holding(sim)
    report = sim.script("read_nvml.py")
    card = sim.card()
    (row,) = card.processes
    assert row.pid == child.pid
    assert row.device_bytes == 100 * MIB + 512  # in steps of 512 bytes
    assert row.pool_bytes == 50 * MIB
    assert row.created_bytes == 8 * MIB
    assert (row.managed_bytes, row.resident_bytes) == (50 * MIB, 30 * MIB)
    expected = card.context_bytes + 188 * MIB + 512
    assert row.used_bytes == card.used_bytes == expected
    assert report["v1"] == report["v2"] == report["v3"] == {str(child.pid): expected}
    assert report["memory"] == [16 << 30, (16 << 30) - expected, expected]


def test_a_busy_card(sim: Any) -> None:
    """Heat, power, clocks and shares of two processes in the middle of work."""
    children = [sim.workload("w2") for _ in range(2)]
    sim.wait_for_launches(2, 1000)
    begun = sim.card().now_ns
    sim.wait_for(lambda: sim.card().now_ns - begun > 7_000_000_000)
    report = sim.script("read_nvml.py")
    assert report["utilisation"][0] == 100
    # While contexts switch nothing is read: 2 of every 2.2 ms.
    assert report["utilisation"][1] == pytest.approx(91, abs=2)
    assert {int(pid) for pid in report["process_utilisation"]} == {child.pid for child in children}
    for share in report["process_utilisation"].values():
        assert share == pytest.approx(45.5, abs=2)
    assert report["celsius"] == 74
    assert report["milliwatts"] == 70000
    assert (report["sm_clock"], report["memory_clock"], report["throttle"]) == (1590, 5001, 0)


def test_samples_of_a_process_that_has_ended(sim: Any) -> None:
    """One for each period in which the card worked for it, as long as the buffer holds them."""
    child = sim.workload("w2")
    sim.wait_for_launches(1, 1000)
    begun = sim.card().now_ns
    sim.wait_for(lambda: sim.card().now_ns - begun > 1_000_000_000)
    worked_ns = sim.card().processes[0].busy_ns
    child.kill()
    child.wait()
    report = sim.script("read_nvml.py")
    assert report["v3"] == {}
    assert {pid for pid, _, _ in report["samples"]} == {child.pid}
    stamps = [stamp for _, stamp, _ in report["samples"]]
    assert {later - sooner for sooner, later in pairwise(stamps)} <= {99_999, 100_000, 100_001}
    told_ns = sum(percent for _, _, percent in report["samples"]) * 1_000_000
    assert told_ns >= 0.95 * worked_ns - 100_000_000
    assert all(stamp > stamps[-1] for _, stamp, _ in report["samples_since"]), "none is told twice"
    begun = sim.card().now_ns
    sim.wait_for(lambda: sim.card().now_ns - begun > 6_500_000_000)
    assert sim.script("read_nvml.py")["samples"] == []


def test_energy_is_the_power_over_time(sim: Any) -> None:
    before = sim.card()
    sim.run(sim.program("plain"))
    after = sim.card()
    busy_s = (after.busy_ns + after.switch_ns - before.busy_ns - before.switch_ns) / 1e9
    all_s = (after.now_ns - before.now_ns) / 1e9
    expected_mj = busy_s * 70_000 + (all_s - busy_s) * 10_000
    assert after.energy_mj - before.energy_mj == pytest.approx(expected_mj, abs=2)


def test_events_are_waited_for(sim: Any) -> None:
    waiter = sim.start_script("wait_xid.py")
    assert waiter.stdout.readline() == "waiting\n"
    sim.node.fault("xid", "0", "43")
    out, err = waiter.communicate(timeout=600)
    assert out == "8 43\n", err
    sim.node.fault("ecc-corrected", "0", "3")
    sim.node.fault("ecc-uncorrected", "0", "2")
    assert sim.script("read_nvml.py")["ecc"] == [3, 2]


def test_many_processes(sim: Any) -> None:
    """More than any fixed array a reader might have begun with."""
    programs = [sim.start_script("hold.py") for _ in range(6)]
    for child in programs:
        assert child.stdout.readline() == "holding\n"
    report = sim.script("read_nvml.py")
    assert {int(pid) for pid in report["v3"]} == {child.pid for child in programs}
    assert report["v1"] == report["v2"] == report["v3"]
    for child in programs[:3]:
        sim.end(child)
    assert {int(pid) for pid in sim.script("read_nvml.py")["v3"]} == {child.pid for child in programs[3:]}


def test_pids_are_the_hosts_from_inside_a_namespace(sim: Any) -> None:
    """A process in a pid namespace is known by the host's number, to readers outside and inside."""
    unshare = shutil.which("unshare")
    assert unshare is not None
    namespace: tuple[str, ...] = (unshare, "--pid", "--fork", "--mount-proc", "--kill-child")
    if os.geteuid() != 0:
        namespace += ("--user", "--map-root-user")
    child = holding(sim, *namespace)
    (row,) = sim.card().processes
    # unshare's own child: the process that holds the memory.
    inner = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    assert [str(row.pid)] == inner
    out = sim.run(*namespace, sys.executable, str(PROGRAMS / "read_nvml.py"))
    assert f'"v3": {{"{row.pid}": {row.used_bytes}}}' in out
    assert f'"own_pid": {row.pid}' not in out


def test_visible_devices(make_sim: Any) -> None:
    sim = make_sim("t4:2,a800:2")
    uuids = [card.uuid for card in sim.node.status().cards]
    first = sim.script("read_nvml.py", NVIDIA_VISIBLE_DEVICES=f"{uuids[2]},{uuids[1]}")
    assert (first["count"], first["uuid"]) == (2, uuids[2])
    # CUDA counts within what the container has; NVML does not look at CUDA's variable.
    both = {"NVIDIA_VISIBLE_DEVICES": f"{uuids[2]},{uuids[1]}", "CUDA_VISIBLE_DEVICES": "1"}
    assert sim.script("bindings.py", **both)["name"] == "Tesla T4"
    assert sim.card(1).busy_ns > 0
    assert sim.script("bindings.py", CUDA_VISIBLE_DEVICES=uuids[3][:12])["name"].startswith("NVIDIA A800")
    assert sim.card(3).busy_ns > 0
    assert sim.card(0).busy_ns == sim.card(2).busy_ns == 0


def test_sessions_and_newer_layouts(sim: Any) -> None:
    child = sim.workload("w2")
    sim.wait_for_launches(1, 1000)
    report = sim.script("read_nvml_more.py")
    (row,) = sim.card().processes
    assert report["details"] == {str(child.pid): row.used_bytes}
    assert list(report["samples"]) == [str(child.pid)]
    assert 1 <= report["samples"][str(child.pid)] <= 100
    assert report["name"].startswith("python")
    assert report["no_such_process"] == report["no_such_uuid"] == "NVMLError_NotFound"
    assert report["no_such_index"] == "NVMLError_InvalidArgument"
    assert report["mig"] == "NVMLError_NotSupported"
    assert report["capability"] == [7, 5]
    assert report["link"] == [3, 16]
    assert report["max_clock"] == 1590
    assert report["ecc_mode"] == [1, 1]
    assert report["slowdown"] == 93
    assert report["mps"] == []
    assert report["performance"] == 0
    assert report["after_shutdown"] == "NVMLError_Uninitialized"
