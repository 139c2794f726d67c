"""Which build of the package runs: its core compiled by mypyc, or plain Python. See setup.py.

Found without loading the core, so that `nvshare --version` stays quick.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

_PLAIN_REASON: Final = Path(__file__).with_name("plain_reason.txt")


@cache
def core_kind() -> Literal["compiled", "plain"]:
    spec = find_spec("nvshare.core.scheduler")
    return "plain" if spec is None or str(spec.origin).endswith(".py") else "compiled"


def why_plain() -> str:
    """What kept an installation from compiling the core; empty if nothing did, or if it is editable."""
    if core_kind() == "compiled" or not _PLAIN_REASON.exists():
        return ""
    return _PLAIN_REASON.read_text(encoding="utf-8").strip()


def describe_core() -> str:
    """For people: `compiled core`, or `plain core`, and why."""
    reason = why_plain()
    return f"{core_kind()} core" + (f" ({reason})" if reason else "")
