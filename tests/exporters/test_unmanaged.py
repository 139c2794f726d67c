"""Who is shown as computing past the scheduler: whoever has no client on that GPU, and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nvshare.pods.peer import Peer, own_place, peer_of_pid, process_of
from tests.exporters.node import ROOT, MetricsNode, Scrape, metrics_node
from tests.node.harness import PATIENCE_SEC

# Computes on the card it sees, is a client on another, or leaves without ending; each word is answered.
PROGRAM = """
import sys
from pathlib import Path
from nvshare.workloads.with_driver import DriverGpu
from tests.node.harness import Raw
context = DriverGpu()
client = Raw(Path(sys.argv[1]))
client.register("program", sys.argv[2])
for line in sys.stdin:
    if line == "leave\\n":
        client.close()
    print("done", flush=True)
"""
# A run whose program computes without a client, and is nobody's child any more.
RUN = """
import os, sys
from nvshare.local.cgroup import enter_new
place = enter_new()
print("inside" if place else "nowhere", flush=True)
sys.stdin.readline()
if os.fork() == 0:
    if os.fork() == 0:
        from nvshare.workloads.with_driver import DriverGpu
        context = DriverGpu()
        print(os.getpid(), flush=True)
        sys.stdin.read()
    os._exit(0)
sys.stdin.read()
place.leave()
"""


@contextmanager
def program(node: MetricsNode, code: str, *arguments: str, card: int = 0) -> Iterator[subprocess.Popen[str]]:
    child = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env={**os.environ, **node.environment, "CUDA_VISIBLE_DEVICES": str(card)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate(timeout=PATIENCE_SEC)


def say(child: subprocess.Popen[str], word: str) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(f"{word}\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


def past_us(scrape: Scrape) -> set[tuple[str, str]]:
    return {(s.labels["host_pid"], s.labels["gpu_uuid"]) for s in scrape.of("nvshare_unmanaged_process_info")}


def processes_are(count: int) -> Callable[[Scrape], bool]:
    return lambda scrape: sum(s.value for s in scrape.of("nvshare_gpu_process_count")) == count


def test_a_client_on_one_gpu_is_none_on_another(place: Path) -> None:
    with metrics_node(place, "t4:2") as node:
        first, second = (card.uuid for card in node.sim.status().cards)
        node.wait_scrape(lambda s: len(s.of("nvshare_scheduler_running_clients")) == 2)
        with program(node, PROGRAM, str(node.daemon.path), first, card=1) as child:
            say(child, "here")
            scrape = node.wait_scrape(processes_are(1))
            assert len(scrape.of("nvshare_client_info", gpu_uuid=first)) == 1
            assert past_us(scrape) == {(str(child.pid), second)}


def test_a_client_that_is_away_has_ended_or_has_not_come_back_is_one(place: Path) -> None:
    with metrics_node(place, NVSHARE_METRICS_NVML_INTERVAL_MS="1000") as node:
        uuid = node.card().uuid
        node.wait_scrape(lambda s: bool(s.of("nvshare_gpu_info")))
        with program(node, PROGRAM, str(node.daemon.path), uuid) as child:
            say(child, "here")
            assert past_us(node.wait_scrape(processes_are(1))) == set()
            node.daemon.wait_status(lambda status: status["clients"] == 1 and status["checkpoint_current"])
            node.daemon.kill()
            node.daemon.start()
            former = node.wait_scrape(processes_are(1))
            assert former.value("nvshare_scheduler_expected_clients") == 1
            assert past_us(former) == set(), "of the previous daemon"
            child.send_signal(signal.SIGKILL)
            child.wait(PATIENCE_SEC)
            ended = node.wait_scrape(lambda s: s.value("nvshare_scheduler_expected_clients") == 0)
            assert past_us(ended) == set(), "in NVML's last reading or not"
        with program(node, PROGRAM, str(node.daemon.path), uuid) as child:
            say(child, "here")
            node.wait_scrape(processes_are(1))
            say(child, "leave")
            node.daemon.wait_words("client disconnected")
            away = node.wait_scrape(lambda s: s.value("nvshare_scheduler_clients") == 0)
            assert away.value("nvshare_gpu_process_count") == 1
            assert past_us(away) == set(), "it may come back"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make cgroups everywhere")
def test_what_a_run_left_behind_has_its_pod(node: MetricsNode) -> None:
    with program(node, RUN) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "inside\n"
        node.daemon.control.ask("POST", "/v1/runs", {"pid": run.pid, "pod": "job"})
        orphan = say(run, "go")
        [shown] = node.wait_scrape(
            lambda s: bool(s.of("nvshare_unmanaged_process_info", host_pid=orphan))
        ).of("nvshare_unmanaged_process_info")
        os.kill(int(orphan), signal.SIGKILL)
        run.communicate(timeout=PATIENCE_SEC)
        assert (shown.labels["namespace"], shown.labels["pod"]) == ("default", "job")


def test_a_process_by_its_pid_is_what_it_would_be_as_a_peer() -> None:
    own = process_of(os.getpid())
    assert own is not None
    assert peer_of_pid(os.getpid()) == Peer(own, os.geteuid(), own_place())
    child = subprocess.Popen(["true"])
    child.wait(PATIENCE_SEC)
    assert peer_of_pid(child.pid) is None
