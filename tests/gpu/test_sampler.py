"""The sampler over the simulated driver, faults included: a hang, a call that is not supported, restarts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from nvshare.gpu.card import Card, Rising
from nvshare.gpu.nvml import NvmlError, read_devices_within
from nvshare.gpu.sampler import NVML, Sampler
from nvshare.sim.gpu import SimulatedNode, library_directory
from tests.node.harness import PATIENCE_SEC

ROOT = Path(__file__).resolve().parents[2]
LOOKS_MAX = 600


class Watched:
    """A sampler in a process of its own, since the driver's library is found when a process starts."""

    def __init__(self, directory: Path, spec: str, wrong: str) -> None:
        self.sim = SimulatedNode(directory, spec)
        self.environment = {
            **os.environ,
            "NVSHARE_SIM": spec,
            "NVSHARE_SIM_DIR": str(directory),
            "LD_LIBRARY_PATH": str(library_directory()),
        }
        self.children: list[subprocess.Popen[str]] = []
        self.wrong = wrong
        self.sampler = self.start("tests.gpu.watch_gpus", wrong)

    def start(self, module: str, *arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", module, *arguments]
        child = subprocess.Popen(command, env=self.environment, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)
        self.children.append(child)
        return child

    def look(self) -> dict[str, Any]:
        """What the sampler has now."""
        assert self.sampler.stdin is not None
        assert self.sampler.stdout is not None
        self.sampler.stdin.write(f"{self.wrong}\n")
        self.sampler.stdin.flush()
        found: dict[str, Any] = json.loads(self.sampler.stdout.readline())
        return found

    def wait(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for _ in range(LOOKS_MAX):
            state = self.look()
            if found(state):
                return state
        raise AssertionError(f"never so: {state}")

    def close(self) -> None:
        self.sim.fault("unhang")
        for child in self.children:
            child.kill()
            child.communicate()
        self.sim.close()


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[str], Watched]]:
    made: list[Watched] = []

    def make(spec: str = "t4:1", wrong: str = "") -> Watched:
        made.append(Watched(tmp_path, spec, wrong))
        return made[-1]

    yield make
    for watched in made:
        watched.close()


def gpus(state: dict[str, Any]) -> dict[int, dict[str, Any]]:
    return {reading["index"]: reading for reading in state["readings"]}


def test_everything_a_card_tells(watch: Callable[..., Watched]) -> None:
    watched = watch("t4:1,a800:1")
    state = watched.wait(lambda s: len(s["readings"]) == 2)
    for card in watched.sim.status().cards:
        reading = gpus(state)[card.index]
        assert (reading["uuid"], reading["name"]) == (card.uuid, card.name)
        assert (reading["total_bytes"], reading["used_bytes"], reading["free_bytes"]) == (
            card.total_bytes,
            0,
            card.total_bytes,
        )
        assert None not in reading.values()
        assert state["sources"][card.uuid]["up"]


def test_a_call_that_hangs_delays_its_gpu_alone(watch: Callable[..., Watched]) -> None:
    watched = watch("t4:2")
    hung, fine = (card.uuid for card in watched.sim.status().cards)
    watched.wait(lambda s: len(s["readings"]) == 2)
    watched.sim.fault("hang", "nvmlDeviceGetPowerUsage", "0")
    state = watched.wait(lambda s: not s["sources"][hung]["up"])
    assert state["sources"][hung]["hangs"] == 1
    assert state["sources"]["nvml"]["up"]
    assert [reading["uuid"] for reading in state["readings"]] == [fine]
    first_ns = gpus(state)[1]["taken_ns"]
    later = watched.wait(lambda s: gpus(s)[1]["taken_ns"] > first_ns + 1_000_000_000)
    assert later["sources"][hung]["hangs"] == 1, "one call hangs, and no further one is made"
    assert later["threads"] == state["threads"]
    watched.sim.fault("unhang")
    watched.wait(lambda s: s["sources"][hung]["up"] and len(s["readings"]) == 2)


def test_a_call_that_is_not_supported_leaves_out_its_own_figure(watch: Callable[..., Watched]) -> None:
    watched = watch("t4:2")
    watched.wait(lambda s: len(s["readings"]) == 2)
    for function, figure in (
        ("nvmlDeviceGetTemperature", "celsius"),
        ("nvmlDeviceGetTotalEnergyConsumption", "millijoules"),
        ("nvmlDeviceGetComputeRunningProcesses", "processes"),
        ("nvmlDeviceGetTotalEccErrors", "ecc_corrected"),
    ):
        watched.sim.fault("unsupported", function, "1")
        state = watched.wait(lambda s, figure=figure: gpus(s)[1][figure] is None)  # type: ignore[misc]
        missing = {name for name, value in gpus(state)[1].items() if value is None}
        assert missing - {"ecc_uncorrected", "process_count"} == {figure}
        assert None not in gpus(state)[0].values()
    watched.sim.fault("supported")
    watched.wait(lambda s: None not in gpus(s)[1].values())


def test_nvml_down_lost_and_restarted(watch: Callable[..., Watched]) -> None:
    watched = watch("t4:2")
    watched.wait(lambda s: len(s["readings"]) == 2)
    watched.sim.fault("nvml-down")
    state = watched.wait(lambda s: not s["up"])
    assert state["readings"] == []
    watched.sim.fault("nvml-up")
    watched.wait(lambda s: s["up"] and len(s["readings"]) == 2)
    watched.sim.fault("driver-restart")
    watched.wait(lambda s: s["told"].count("up") == 3 and len(s["readings"]) == 2)
    watched.sim.fault("xid", "1", "31")
    watched.wait(lambda s: gpus(s)[1]["xids"] == 1 and gpus(s)[1]["last_xid"] == 31)
    assert watched.look()["told"] == ["up", "down", "up", "down", "up"], "told once each time"


def test_a_driver_that_goes_is_reported_by_whichever_thread_notices() -> None:
    """A GPU's thread may be the first, and the finder open NVML anew before it has seen it gone."""
    told: list[bool] = []
    sampler = Sampler(1, lambda _reading: None, lambda _pid: None, lambda _source, up, _why: told.append(up))
    sampler.session = 1
    sampler.note(NVML, True)
    for _ in range(2):  # of two threads
        sampler.session_over(1, "driver not loaded")
    assert sampler.session == -1
    sampler.session = 2
    sampler.note(NVML, True)
    assert told == [True, False, True]
    assert sampler.sources(0)[NVML].failures == 1


def test_any_number_of_processes_by_pid_and_start_time(watch: Callable[..., Watched]) -> None:
    watched = watch("t4:1")
    holders = [watched.start("tests.gpu.hold_context") for _ in range(12)]
    for holder in holders:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
    state = watched.wait(lambda s: bool(s["readings"]) and len(s["readings"][0]["processes"]) == len(holders))
    told = {process["pid"]: process for process in state["readings"][0]["processes"]}
    for process in watched.sim.status().cards[0].processes:
        assert told[process.pid]["used_bytes"] == process.used_bytes
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        assert told[process.pid]["start_ticks"] == int(fields[19])


def test_processes_that_cannot_be_looked_up_are_counted_and_nothing_else_is_lost(
    watch: Callable[..., Watched],
) -> None:
    watched = watch("t4:1", "see")
    holders = [watched.start("tests.gpu.hold_context") for _ in range(2)]
    for holder in holders:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
    state = watched.wait(lambda s: bool(s["readings"]) and s["readings"][0]["process_count"] == 2)
    assert state["readings"][0]["processes"] == []
    assert None not in state["readings"][0].values()
    watched.wrong = ""
    state = watched.wait(lambda s: len(s["readings"][0]["processes"]) == 2)
    assert state["readings"][0]["process_count"] == 2
    assert state["told_of_others"] == []


def test_whatever_a_look_raises_is_counted_and_reported_once_and_the_next_is_made(
    watch: Callable[..., Watched],
) -> None:
    watched = watch("t4:1")
    uuid = watched.sim.status().cards[0].uuid
    assert watched.wait(lambda s: bool(s["readings"]))["sources"][uuid]["failures"] == 0
    watched.wrong = "deliver"
    state = watched.wait(lambda s: s["sources"][uuid]["failures"] >= 3)
    assert state["told_of_others"] == ["gpu-0 down"]
    assert state["sources"]["nvml"]["failures"] == 0
    watched.wrong = ""
    state = watched.wait(lambda s: len(s["told_of_others"]) == 2 and s["sources"][uuid]["up"])
    assert state["told_of_others"] == ["gpu-0 down", "gpu-0 up"]
    assert state["told"] == ["up"], "NVML itself was never away"


def test_a_gpu_whose_thread_cannot_be_started_is_found_later(watch: Callable[..., Watched]) -> None:
    watched = watch("t4:1", "thread")
    state = watched.wait(lambda s: s["sources"]["nvml"]["failures"] >= 2)
    assert state["told_of_others"] == ["finder down"]
    assert state["readings"] == []
    watched.wrong = ""
    state = watched.wait(lambda s: len(s["readings"]) == 1 and len(s["told_of_others"]) == 2)
    assert state["told_of_others"] == ["finder down", "finder up"]


def test_a_name_that_cannot_be_read_leaves_out_the_name_alone() -> None:
    def call(function: Callable[..., Any], *_arguments: Any) -> Any:
        if function is pynvml.nvmlDeviceGetName:
            b"Tesla \xff".decode()  # as the binding does
        if function is pynvml.nvmlDeviceGetTemperature:
            return 41
        raise pynvml.NVMLError_NotSupported

    reading = Card("GPU-a").look(None, 0, 1, call, lambda _pid: None, 7)
    assert (reading.name, reading.celsius) == (None, 41)


def test_a_counter_that_starts_anew_goes_on() -> None:
    rising = Rising()
    assert [rising.at(value) for value in (5, 9, 2, None, 3, 0)] == [5, 9, 11, None, 12, 12]


def test_what_cannot_be_read_at_the_start_is_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is told at once, not after a wait for a thread that has died."""

    def garbled() -> int:
        return int(b"\xff".decode())

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", garbled)
    with pytest.raises(NvmlError, match="decode"):
        read_devices_within(PATIENCE_SEC)
