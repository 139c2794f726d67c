"""Outcomes of ending a process, for the daemon and its clients."""

from __future__ import annotations

from typing import Final

GRACE_SEC_MAX: Final = 300.0
"""Between SIGTERM and SIGKILL."""
KILLED_WITHIN_SEC: Final = 5.0
"""A process that the kernel has not ended by then, for instance while a driver hangs, is given up."""
OUTCOMES: Final = {
    "terminated": "ended by SIGTERM",
    "killed": "ended by SIGKILL",
    "gone": "had ended before",
    "survived": f"still there {KILLED_WITHIN_SEC:.0f} s after SIGKILL: the kernel cannot end it now",
    "not_permitted": "the daemon may not signal it: it lacks a capability, or a security module forbids it",
    "not_yours": "runs as another user now, so it is not yours to end",
    "protected": "never ended by us: init, or the daemon itself",
}
