"""Where a tenant stands on a GPU: exactly one of these, changed by ``Gpu.move`` alone.

Each state but the first two has one place that holds its tenants. The table lists the transitions; the
diagram in docs/architecture.md and the exhaustive test are made from it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TenantState(IntEnum):
    ABSENT = 0
    IDLE = 1
    RESUMING = 2
    ASKING = 3
    QUEUED = 4
    OUTSIDE = 5
    HOLDING = 6
    TOGETHER = 7
    DRAINING = 8
    UNDRAINED = 9


# The same as plain numbers, which the compiled core compares in no time.
ABSENT: Final = 0
IDLE: Final = 1
RESUMING: Final = 2
ASKING: Final = 3
QUEUED: Final = 4
OUTSIDE: Final = 5
HOLDING: Final = 6
TOGETHER: Final = 7
DRAINING: Final = 8
UNDRAINED: Final = 9

MEANING: Final = {
    TenantState.ABSENT: "the pod has no process here, and owes nothing",
    TenantState.IDLE: "neither waits nor holds; may still owe time",
    TenantState.RESUMING: "known to the previous daemon, and not back yet",
    TenantState.ASKING: "has just asked; its place is decided before the event ends",
    TenantState.QUEUED: "waits for its turn; its memory may be resident",
    TenantState.OUTSIDE: "waits for memory, or in serial mode for its slice",
    TenantState.HOLDING: "has the GPU to itself, as tenants with a quota do",
    TenantState.TOGETHER: "has the GPU together with others that have no quota",
    TenantState.DRAINING: "was asked to let go, and the next tenant waits for it",
    TenantState.UNDRAINED: "did not let go in time: others run at the same time",
}

_S = TenantState
TRANSITIONS: Final[dict[tuple[TenantState, TenantState], str]] = {
    (_S.ABSENT, _S.IDLE): "a process registers",
    (_S.ABSENT, _S.RESUMING): "the previous daemon's checkpoint is restored",
    (_S.RESUMING, _S.IDLE): "a process comes back, or registers",
    (_S.RESUMING, _S.ABSENT): "nobody came back, and nothing is owed",
    (_S.IDLE, _S.ABSENT): "its last process is gone, and its debt is repaid by time",
    (_S.IDLE, _S.ASKING): "a process asks",
    (_S.IDLE, _S.TOGETHER): "a process asks on an uncontended GPU, or resumes holding",
    (_S.IDLE, _S.HOLDING): "a process resumes holding",
    (_S.IDLE, _S.UNDRAINED): "a process resumes holding beside others",
    (_S.ASKING, _S.QUEUED): "its memory is resident or fits",
    (_S.ASKING, _S.OUTSIDE): "its memory does not fit, or it must wait for its slice",
    (_S.ASKING, _S.IDLE): "none of its processes asks any more",
    (_S.ASKING, _S.HOLDING): "a process resumes holding",
    (_S.ASKING, _S.TOGETHER): "a process resumes holding",
    (_S.ASKING, _S.UNDRAINED): "a process resumes holding beside others",
    (_S.QUEUED, _S.HOLDING): "its turn begins, or a process resumes holding",
    (_S.QUEUED, _S.TOGETHER): "its turn begins, or a process resumes holding",
    (_S.QUEUED, _S.UNDRAINED): "others may spin for it, or a process resumes holding beside others",
    (_S.QUEUED, _S.OUTSIDE): "the memory set is full or exchanged",
    (_S.QUEUED, _S.IDLE): "none of its processes asks any more",
    (_S.OUTSIDE, _S.QUEUED): "it is admitted",
    (_S.OUTSIDE, _S.IDLE): "none of its processes asks any more",
    (_S.OUTSIDE, _S.HOLDING): "a process resumes holding",
    (_S.OUTSIDE, _S.TOGETHER): "a process resumes holding",
    (_S.OUTSIDE, _S.UNDRAINED): "a process resumes holding beside others",
    (_S.HOLDING, _S.DRAINING): "its turn ends",
    (_S.HOLDING, _S.UNDRAINED): "its turn ends, and nobody waits for its drains",
    (_S.HOLDING, _S.TOGETHER): "its quota was lifted",
    (_S.HOLDING, _S.IDLE): "it lets go",
    (_S.HOLDING, _S.ASKING): "it lets go and asks again",
    (_S.TOGETHER, _S.DRAINING): "its turn ends",
    (_S.TOGETHER, _S.UNDRAINED): "its turn ends, and nobody waits for its drains",
    (_S.TOGETHER, _S.IDLE): "it lets go",
    (_S.TOGETHER, _S.ASKING): "it lets go and asks again",
    (_S.DRAINING, _S.IDLE): "it lets go",
    (_S.DRAINING, _S.ASKING): "it lets go and asks again",
    (_S.DRAINING, _S.UNDRAINED): "the grace period is over",
    (_S.UNDRAINED, _S.IDLE): "it lets go",
    (_S.UNDRAINED, _S.ASKING): "it lets go and asks again",
}


FOLLOWS: Final = [[(before, after) in TRANSITIONS for after in TenantState] for before in TenantState]
"""By state: whether each of the others may follow it."""


def document() -> list[str]:
    """Both tables, for docs/architecture.md: what each state means, and the transitions as a diagram."""
    lines = ["| state | meaning |", "| --- | --- |"]
    lines += [f"| `{state.name}` | {meaning} |" for state, meaning in MEANING.items()]
    lines += ["", "```mermaid", "stateDiagram-v2"]
    lines += [f"    {before.name} --> {after.name}: {why}" for (before, after), why in TRANSITIONS.items()]
    return [*lines, "```"]
