"""Programs in no pod: a bounded number of names, each shown once, with what all of that name have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from nvshare.exporters.scheduler.client import _joined, _Row
from nvshare.exporters.scheduler.merged_counters import FORGET_NS, MergedCounters
from nvshare.exporters.scheduler.program_names import NAMES_MAX, NAMES_PER_USER, ProgramNames
from tests.exporters.node import MetricsNode, metrics_node

CLIENT = """
import sys, os
from tests.node.harness import Raw, T
from pathlib import Path
client = Raw(Path(sys.argv[1]))
client.register("", sys.argv[2])
client.send(T.MEM_USED, arguments=(1000, 0))
for _ in range(3):
    client.cycle()
client.round_trip()
print("ready", flush=True)
sys.stdin.read()
"""
LABEL = f"process:{os.geteuid()}/trainer"
GRANTS = "nvshare_pod_gpu_lock_wait_seconds_count"


class Program(NamedTuple):
    pod: str
    uid: int
    command: str


def program(node: MetricsNode, place: Path) -> subprocess.Popen[str]:
    """A client in no pod whose command is ``trainer``, once it has had three turns."""
    link = place / "trainer"
    if not link.exists():
        link.symlink_to(shutil.which(sys.executable) or sys.executable)
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        [link, "-c", CLIENT, str(node.daemon.path), node.card().uuid],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=pipe,
        stdout=pipe,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


def end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def test_programs_of_one_name_are_added_up(place: Path) -> None:
    with metrics_node(place, NVSHARE_METRICS_DEBUG_LABELS="0", NVSHARE_METRICS_STALE_TTL_SEC="1") as node:
        first, second = program(node, place), program(node, place)
        scrape = node.scrape()
        assert len(scrape.series()) == len([line for line in scrape.text.splitlines() if line[:1] != "#"])
        assert {s.labels["pod"] for s in scrape.samples if "pod" in s.labels} == {LABEL}
        assert scrape.value("nvshare_client_managed_allocated_bytes", pod=LABEL) == 2000
        assert scrape.value("nvshare_client_core_window_limit_ms", pod=LABEL) == 4000
        assert scrape.value("nvshare_client_core_quota_config_percent", pod=LABEL) == 100
        assert scrape.value(GRANTS, pod=LABEL) == 6
        end(first)
        node.daemon.wait_status(lambda status: status["clients"] == 1)
        node.wait_scrape(lambda _: len(node.daemon.control.ask("GET", "/v1/gpus")["gpus"][0]["tenants"]) == 1)
        third = program(node, place)
        for _ in range(3):  # the first one is forgotten meanwhile
            assert node.scrape().value(GRANTS, pod=LABEL) == 9, "it counts on"
            node.daemon.control.ask("GET", "/v1/status")
        end(second)
        end(third)
        node.wait_scrape(lambda s: not s.of(GRANTS))


def test_debug_labels_show_each_process(place: Path) -> None:
    with metrics_node(place, NVSHARE_METRICS_DEBUG_LABELS="1") as node:
        child = program(node, place)
        [sample] = node.scrape().of(GRANTS)
        assert sample.labels["pod"].startswith(f"process:{child.pid}:")
        end(child)


def test_names_are_bounded_and_plain() -> None:
    names = ProgramNames()
    programs = [Program(f"process:{number}:7", 1000, f"job-{number}") for number in range(NAMES_PER_USER + 9)]
    for one in (*programs, Program("ml/train", 0, "python")):
        names.learn(one)
    given = {names.name(one.pod) for one in programs}
    assert len(given) == NAMES_PER_USER + 1
    assert "process:1000/other" in given
    names.learn(Program("process:900:7", 5, 'a "b"\n'))
    names.learn(Program("process:901:7", 5, ""))
    assert names.name("process:900:7") == "process:5/a__b__"
    assert names.name("process:901:7") == "process:5/other"
    assert names.name("process:902:7") == "process:other", "nobody knows who that was"
    names.keep_only({"process:900:7"})
    assert names.name("process:901:7") == "process:other"
    for uid in range(2 * NAMES_MAX):
        names.learn(Program(f"process:{uid}:8", uid, "x"))
    assert len({names.name(f"process:{uid}:8") for uid in range(2 * NAMES_MAX)}) <= NAMES_MAX
    assert names.name(f"process:{2 * NAMES_MAX - 1}:8") == "process:other"


def test_sums_of_one_name_never_go_back() -> None:
    joined, labels = MergedCounters(), ("", "process:0/x", "GPU-a")
    joined.add(("p1", "GPU-a"), labels, (5, 1), 1)
    joined.add(("p2", "GPU-a"), labels, (2, 1), 1)
    assert joined.sum_of(labels) == [7, 2]
    joined.add(("p1", "GPU-a"), labels, (4, 3), 2)
    assert joined.sum_of(labels) == [7, 4], "an older look adds nothing"
    joined.add(("p2", "GPU-a"), labels, (3, 1), 3 + FORGET_NS)
    list(joined.forgetting(3 + FORGET_NS))
    assert joined.sum_of(labels) == [8, 4], "who is gone stays in the sum"
    list(joined.forgetting(3 * FORGET_NS))
    joined.add(("p3", "GPU-a"), labels, (1, 1), 3 * FORGET_NS)
    assert joined.sum_of(labels) == [1, 1], "a name that was gone begins anew"


def row(pod: str, nvml_bytes: int | None) -> _Row:
    """Of a program whose every figure is 20."""
    figures: dict[str, Any] = dict.fromkeys(_Row._fields[4:], 20) | {"nvml_bytes": nvml_bytes}
    return _Row(("", pod, "1", "GPU-a"), "0", "7", "none", **figures)


def test_figures_of_one_name_are_added_up_if_all_are_known() -> None:
    program, pod = "process:0/x", "job"
    [of_pod, joined] = _joined([row(program, 20), row(pod, 20), row(program, 30), row(program, 40)])
    assert of_pod == row(pod, 20)
    yes_or_no = ("exceeded", "throttled", "pending_drop", "unresponsive")
    assert {name: getattr(joined, name) for name in _Row._fields[4:]} == {
        name: 90 if name == "nvml_bytes" else 20 if name in yes_or_no else 60 for name in _Row._fields[4:]
    }
    [joined] = _joined([row(program, 20), row(program, None), row(program, 40)])
    assert joined.nvml_bytes is None
