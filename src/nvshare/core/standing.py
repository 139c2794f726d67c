"""Where a tenant stands on a GPU: exactly one of these, changed by ``Gpu.move`` alone.

Each standing but the first two has one place that holds its tenants. The table says what may follow what; the
diagram in docs/architecture.md and the exhaustive test are made from it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Standing(IntEnum):
    ABSENT = 0
    IDLE = 1
    RESUMING = 2
    ASKING = 3
    IN_LINE = 4
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
IN_LINE: Final = 4
OUTSIDE: Final = 5
HOLDING: Final = 6
TOGETHER: Final = 7
DRAINING: Final = 8
UNDRAINED: Final = 9

MEANING: Final = {
    Standing.ABSENT: "no process of the pod is here, and it owes nothing",
    Standing.IDLE: "neither waits nor holds; may still owe time",
    Standing.RESUMING: "known to a former daemon, and not back yet",
    Standing.ASKING: "has just asked; its place is decided before the event ends",
    Standing.IN_LINE: "waits for its turn, its memory may be resident",
    Standing.OUTSIDE: "waits for memory, or in serial mode for its slice",
    Standing.HOLDING: "has the GPU for itself, as tenants with a quota do",
    Standing.TOGETHER: "has the GPU together with others that have no quota",
    Standing.DRAINING: "was told to let go, and the next one waits for it",
    Standing.UNDRAINED: "did not let go in time: others run beside it",
}

_S = Standing
TRANSITIONS: Final[dict[tuple[Standing, Standing], str]] = {
    (_S.ABSENT, _S.IDLE): "a process registers",
    (_S.ABSENT, _S.RESUMING): "a former daemon's books are restored",
    (_S.RESUMING, _S.IDLE): "a process comes back, or registers",
    (_S.RESUMING, _S.ABSENT): "nobody came back, and nothing is owed",
    (_S.IDLE, _S.ABSENT): "its last process is gone, and time has repaid what it owed",
    (_S.IDLE, _S.ASKING): "a process asks",
    (_S.IDLE, _S.TOGETHER): "a process asks on an uncontended GPU, or resumes holding",
    (_S.IDLE, _S.HOLDING): "a process resumes holding",
    (_S.IDLE, _S.UNDRAINED): "a process resumes holding beside others",
    (_S.ASKING, _S.IN_LINE): "its memory is resident or fits",
    (_S.ASKING, _S.OUTSIDE): "its memory does not fit, or it must wait for its slice",
    (_S.ASKING, _S.IDLE): "nobody asks any more",
    (_S.ASKING, _S.HOLDING): "a process resumes holding",
    (_S.ASKING, _S.TOGETHER): "a process resumes holding",
    (_S.ASKING, _S.UNDRAINED): "a process resumes holding beside others",
    (_S.IN_LINE, _S.HOLDING): "its turn begins, or a process resumes holding",
    (_S.IN_LINE, _S.TOGETHER): "its turn begins, or a process resumes holding",
    (_S.IN_LINE, _S.UNDRAINED): "others may spin for it, or a process resumes holding beside others",
    (_S.IN_LINE, _S.OUTSIDE): "the memory set is full or exchanged",
    (_S.IN_LINE, _S.IDLE): "nobody asks any more",
    (_S.OUTSIDE, _S.IN_LINE): "it is let in",
    (_S.OUTSIDE, _S.IDLE): "nobody asks any more",
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


FOLLOWS: Final = [[(before, after) in TRANSITIONS for after in Standing] for before in Standing]
"""By standing, whether each other may follow it."""


def document() -> list[str]:
    """Both tables, for docs/architecture.md: what each standing means, and the transitions as a diagram."""
    lines = ["| standing | meaning |", "| --- | --- |"]
    lines += [f"| `{standing.name}` | {meaning} |" for standing, meaning in MEANING.items()]
    lines += ["", "```mermaid", "stateDiagram-v2"]
    lines += [f"    {before.name} --> {after.name}: {why}" for (before, after), why in TRANSITIONS.items()]
    return [*lines, "```"]
