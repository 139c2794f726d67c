"""Captures are invalidated as by CUDA; a kernel waits for the host; a lost GPU fails calls and returns."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

OK = "CUDA_SUCCESS"
UNSUPPORTED = "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
INVALIDATED = "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
PROGRAMS = Path(__file__).parent / "programs"


def test_capture_streams_and_the_host(sim: Any) -> None:
    report = sim.script("rules.py")
    launch_ms = sim.card().launch_ns / 1e6
    assert report["global"] == [UNSUPPORTED, INVALIDATED]
    assert report["event_query"] == [UNSUPPORTED, INVALIDATED]
    assert report["thread_local"] == [OK, OK]
    assert report["own"] == [UNSUPPORTED, INVALIDATED]
    assert report["relaxed_own"] == [OK, OK]
    assert report["sync"] == [UNSUPPORTED, INVALIDATED]
    assert report["implicit"] == ["CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", INVALIDATED]
    assert report["unjoined"] == "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"
    assert report["joined_nodes"] == 2
    assert report["captured_event"] == "CUDA_ERROR_CAPTURED_EVENT"
    assert report["graph_memory"] == [64 << 20, 0]
    assert report["spinning"] == "CUDA_ERROR_NOT_READY"
    assert report["spin_ms"] >= 50
    assert report["four_beside_ms"] == pytest.approx(1 + launch_ms, rel=0.02)
    assert report["order"] == ["host function", "synchronised"]
    assert report["value_waits"] == "CUDA_ERROR_NOT_READY"
    assert report["value_written"] == 99


def test_a_lost_card_and_back(make_sim: Any) -> None:
    sim = make_sim("t4:2")
    child = sim.start_script("lost.py")
    assert child.stdout.readline() == "working\n"
    sim.node.fault("lost", "0")
    # A call that was waiting fails at once, not when its work would have been done.
    assert child.stdout.readline() == "synchronize CUDA_ERROR_UNKNOWN\n"
    assert sim.card(0).processes == ()
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "launch CUDA_ERROR_UNKNOWN\n"
    assert child.stdout.readline() == "alloc CUDA_ERROR_UNKNOWN\n"
    reader = sim.start_script("read_nvml.py", "0")
    _, errors = reader.communicate(timeout=600)
    assert "NVMLError_GpuIsLost" in errors
    assert sim.script("read_nvml.py", "1")["count"] == 2
    # To a program that starts now, the machine has one card.
    assert sim.script("bindings.py")["count"] == 1
    sim.node.fault("back", "0")
    child.stdin.write("\n")
    child.stdin.flush()
    out, errors = child.communicate(timeout=600)
    assert out == f"still CUDA_ERROR_UNKNOWN\nagain {OK} {OK}\n", errors
    assert sim.script("read_nvml.py", "0")["v3"] == {}


def test_no_card_left(sim: Any) -> None:
    sim.node.fault("lost", "0")
    child = sim.workload("w2")
    _, errors = child.communicate(timeout=600)
    assert child.returncode == 1
    assert "CUDA_ERROR_NO_DEVICE" in errors


def test_nvml_down_and_up(sim: Any) -> None:
    sim.node.fault("nvml-down")
    reader = sim.start_script("read_nvml.py")
    _, errors = reader.communicate(timeout=600)
    assert "NVMLError_DriverNotLoaded" in errors
    assert "PASS" in sim.run(sim.program("plain"))
    sim.node.fault("nvml-up")
    assert sim.script("read_nvml.py")["count"] == 1


def test_a_call_that_hangs(sim: Any) -> None:
    sim.node.fault("hang", "nvmlDeviceGetMemoryInfo")
    reader = sim.start_script("read_nvml.py")
    program = sim.run(sim.program("plain"))  # others are not held up
    assert "PASS" in program
    with pytest.raises(Exception, match="timed out"):
        reader.communicate(timeout=1)
    sim.node.fault("unhang")
    out, _ = reader.communicate(timeout=600)
    assert '"count": 1' in out


def test_a_cuda_call_that_hangs(sim: Any) -> None:
    """Named as programs name it: cuMemAlloc is cuMemAlloc_v2."""
    sim.node.fault("hang", "cuMemAlloc")
    child = sim.workload("w4", "--iterations", "1")
    sim.wait_for(lambda: len(sim.card().processes) == 1)
    with pytest.raises(Exception, match="timed out"):
        child.communicate(timeout=1)
    assert sim.card().processes[0].device_bytes == 0
    sim.node.fault("unhang")
    out, errors = child.communicate(timeout=600)
    assert "PASS" in out, errors


def test_a_lost_card_tells_its_xid(sim: Any) -> None:
    waiter = sim.start_script("wait_xid.py")
    assert waiter.stdout.readline() == "waiting\n"
    sim.node.fault("lost", "0")
    out, errors = waiter.communicate(timeout=600)
    assert out == "8 79\n", errors


def test_a_driver_restart_ends_contexts(sim: Any) -> None:
    uuid = sim.card().uuid
    child = sim.start_script("lost.py")
    assert child.stdout.readline() == "working\n"
    sim.node.fault("driver-restart")
    assert child.stdout.readline() == "synchronize CUDA_ERROR_CONTEXT_IS_DESTROYED\n"
    card = sim.card()
    assert (card.used_bytes, card.processes, card.uuid) == (0, (), uuid)
    assert "PASS" in sim.run(sim.program("plain"))


def test_slow_pcie(sim: Any) -> None:
    def copy_ns() -> int:
        before = sim.card().copy_in_ns
        sim.run(sys.executable, "-c", COPY, PYTHONPATH=str(PROGRAMS))
        return int(sim.card().copy_in_ns - before)

    card = sim.card()
    expected = (1 << 30) * 10**9 / card.pcie_bytes_per_s
    assert copy_ns() == pytest.approx(expected, rel=0.001)
    sim.node.fault("slow-pcie", "0", "4")
    assert copy_ns() == pytest.approx(4 * expected, rel=0.001)


COPY = """
import ctypes
from cuda.bindings import driver as cuda
from cuda_calls import checked, open_device
open_device()
size = 1 << 30
host, device = checked(cuda.cuMemHostAlloc(size, 0)), checked(cuda.cuMemAlloc(size))
checked(cuda.cuMemcpyHtoD(device, host, size))
"""
