"""A scripted node: the same events and readings each time, so that the whole of /metrics is the same text.

python -m tests.exporters.scripted       # writes the golden file after a change that is meant
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Final

from nvshare.core import events
from nvshare.core.scheduler import Scheduler
from nvshare.exporters.executor import Executor
from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.view import Figures, View
from nvshare.gpu.reading import GpuReading, ProcessReading, SourceState
from nvshare.gpu.sampler import NVML
from nvshare.metrics.families import Distribution
from nvshare.metrics.rows import LOOP_EXPONENTS
from nvshare.metrics.scheduler.daemon import EXECUTOR_FAMILIES
from nvshare.node.member import EndedMember
from nvshare.pods.peer import Process

GOLDEN: Final = Path(__file__).parent / "golden" / "scheduler.prom"
GIB: Final = 1 << 30
MS_NS: Final = 1_000_000
SECOND_NS: Final = 1_000 * MS_NS
START_NS: Final = 1_000 * SECOND_NS
WALL_NS: Final = 1_700_000_000 * SECOND_NS
GPUS: Final = ("GPU-00000000-0000-4000-8000-000000000000", "GPU-11111111-1111-4111-8111-111111111111")
_CHANGES = re.compile(
    r'^(nvshare_process_\S+|nvshare_exporter_duration_seconds\{[^}]*\}) \S+$|(python|version)="[^"]*"',
    re.MULTILINE,
)
"""What is not the node's: this process, how quick it is, versions."""


class ScriptedNode:
    """Two pods with quotas, one without, one that does not fit, and one that has left the other GPU."""

    def __init__(self) -> None:
        self.scheduler, self.now_ns = Scheduler(), START_NS
        self.members: list[EndedMember] = []
        for number, key in enumerate(GPUS):
            self.feed(events.GpuSeen(key, 16 * GIB, number))
        self.feed(events.LimitsSet("ml/train", "annotation", 4 * GIB, 30))
        self.feed(events.LimitsSet('ml/serve "a"', "ctl", None, 60))
        train, serve = self.register("ml/train", 0, 3 * GIB), self.register('ml/serve "a"', 0, GIB)
        free, large = self.register("default/free", 0, GIB), self.register("default/large", 0, 12 * GIB)
        gone = self.register("process:77:7", 1, 2 * GIB)
        for client in (train, serve, free, large, gone):
            self.feed(events.LockRequested(client))
        self.run(5 * SECOND_NS)
        self.feed(events.ProcessGone(gone))
        self.run(SECOND_NS)

    def feed(self, event: events.Event) -> None:
        self.scheduler.handle(event, self.now_ns)

    def register(self, pod: str, gpu: int, used_bytes: int) -> int:
        client = len(self.members) + 1
        self.members.append(EndedMember(Process(1000 + client, 7), GPUS[gpu], pod, 1000, "python"))
        self.feed(events.ClientRegistered(client, pod, GPUS[gpu]))
        self.feed(events.MemoryUsed(client, used_bytes))
        return client

    def run(self, duration_ns: int) -> None:
        """Deadlines as they fall due."""
        end_ns = self.now_ns + duration_ns
        while (due_ns := self.scheduler.next_deadline_ns()) is not None and due_ns <= end_ns:
            self.now_ns = max(self.now_ns, due_ns)
            self.feed(events.Woken())
        self.now_ns = end_ns

    def view(self) -> View:
        return View(
            taken_ns=self.now_ns,
            wall_ns=WALL_NS,
            ttl_ns=300 * SECOND_NS,
            observation=self.scheduler.begin_observation(0, self.now_ns),
            processes={number: one.process for number, one in enumerate(self.members, 1)},
            managed=self.members,
            memory_sources=dict(self.scheduler.limits.memory_sources),
            nvml_up=True,
            readings=[self._reading(number) for number in range(len(GPUS))],
            last_words=[],
            sources={name: SourceState(True, 0, 0, self.now_ns) for name in (NVML, *GPUS)},
            overheads={1: 100 << 20},
            worked_ns={},
            figures=_figures(),
            draining=frozenset({GPUS[1]}),
        )

    def _reading(self, number: int) -> GpuReading:
        here = [one for one in self.members if one.gpu == GPUS[number]]
        listed = [ProcessReading(one.process.pid, 7, "", GIB, 20) for one in here]
        stranger = ProcessReading(4242, 9, "container:c0ffee", 3 * GIB, 5)
        return GpuReading(
            GPUS[number],
            number,
            self.now_ns - 250 * MS_NS,
            name="Tesla T4",
            total_bytes=16 * GIB,
            used_bytes=9 * GIB,
            free_bytes=7 * GIB,
            gpu_percent=87,
            celsius=55,
            milliwatts=61_500,
            process_count=len(listed) + 1,
            processes=(*listed, stranger),
            simulated=True,
            xids=1,
            last_xid=31,
        )


def _figures() -> Figures:
    durations = Distribution(tuple(range(len(LOOP_EXPONENTS) + 1)), 1.5)
    return Figures(
        messages={"REGISTER": 5, "REQ_LOCK": 7},
        refused={"unknown_gpu": 1},
        disconnects={"ended": 1},
        killed={"operator": 2},
        events={"accept_paused_full": 3, "callback_raised": 0, "journal_failed": 4},
        lag=durations,
        callbacks=durations,
        scrape_steps=durations,
        standstill_ns=250 * MS_NS,
        clients=4,
        expected=1,
        unregistered=2,
        scheduling_on=True,
        checkpoints_written=10,
        checkpoints_failed=1,
        checkpoint_age_ns=500 * MS_NS,
        http_connections=1,
        http_requests=6,
        web_config_failures=0,
    )


def metrics_text(debug_labels: bool = True) -> str:
    """What the node's port shows, with what is not the node's left out."""
    executor = Executor(EXPORTERS, ScriptedNode().view, debug_labels, _fail, EXECUTOR_FAMILIES)
    text = b"".join(asyncio.run(executor.scrape(False, frozenset()))).decode()
    return _CHANGES.sub(lambda match: f"{match[1]} -" if match[1] else f'{match[2]}="-"', text)


def _fail(name: str, error: Exception) -> None:
    raise AssertionError(name) from error


if __name__ == "__main__":
    GOLDEN.parent.mkdir(exist_ok=True)
    GOLDEN.write_text(metrics_text())
    print(f"wrote {GOLDEN}")
