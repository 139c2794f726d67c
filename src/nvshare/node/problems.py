"""Whether the daemon is healthy, and what is wrong otherwise: one line per problem, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from nvshare.core.scheduler import Scheduler
from nvshare.core.units import counted
from nvshare.node.counters import Counters


class CardReport(NamedTuple):
    """What NVML reports on a GPU."""

    answers: bool
    used_bytes: int | None = None  # by any process


class Cards(NamedTuple):
    """What NVML reports on all GPUs, if it is sampled."""

    nvml_answers: bool
    by_key: Mapping[str, CardReport]


def problems(scheduler: Scheduler, counters: Counters, cards: Cards | None, of_files: list[str]) -> list[str]:
    found = []
    health = scheduler.health
    if health.books_wrong or health.clock_went_back:
        times = health.books_wrong + health.clock_went_back
        faults = counted(times, "inconsistency", "inconsistencies")
        found.append(f"the scheduler found {faults} in its own books, the last: {health.last_fault}")
    raised = counters.events["callback_raised"]
    if raised:
        found.append(f"{counted(raised, 'internal error')}: see the log")
    found += of_files
    found += unresponsive(scheduler)
    if not scheduler.on:
        found.append("scheduling is off: everybody runs at once, without quotas")
    if cards is not None and not cards.nvml_answers:
        found.append("NVML does not answer")
    elif cards is not None:
        found += [f"{key} does not answer" for key, card in cards.by_key.items() if not card.answers]
    return found


def unresponsive(scheduler: Scheduler) -> list[str]:
    """Pods that have not released a GPU for NVSHARE_DROP_TIMEOUT_SEC."""
    return [
        f"{tenant.pod} does not respond on {gpu.key}: see nvshare ctl explain {tenant.pod}"
        for gpu in scheduler.gpus.values()
        for tenant in gpu.occupants.undrained
        if tenant.habits.unresponsive
    ]
