"""A sentence about the limits of a pod and who set them."""

from __future__ import annotations

from typing import Any, Final

from nvshare.core.limits import NO_SOURCE, SOURCE_WORDS
from nvshare.core.units import format_bytes

_BY_ROOT: Final = "set by root with nvshare ctl quota set"


def core_words(limits: dict[str, Any]) -> str:
    percent = limits["core_percent"]
    if percent == 100:
        return "no quota"
    return f"{percent} % of each GPU's time" + (" or more" if limits["share"] else "")


def memory_words(limits: dict[str, Any]) -> str:
    amount_bytes = limits["memory_bytes"]
    return f"{format_bytes(amount_bytes)} of each GPU's memory" if amount_bytes else "no memory limit"


def describe(answer: dict[str, Any], core_percent: int | None = None, memory_bytes: int | None = None) -> str:
    """From the daemon's answer; the figures are those requested just now, if any."""
    limits, asked = answer["limits"], answer["asked"]
    if core_percent is None and asked["core_source"] != NO_SOURCE:
        core_percent = asked["core_percent"]
    if memory_bytes is None and asked["memory_source"] != NO_SOURCE:
        memory_bytes = asked["memory_bytes"]
    core = [origin(answer, "core_source")]
    if core_percent not in (None, limits["core_percent"]):
        core.append(
            f"not the {core_percent} % asked for" if core_percent != 100 else "no quota was asked for"
        )
    memory = [origin(answer, "memory_source")]
    if memory_bytes not in (None, limits["memory_bytes"]):
        memory.append(
            f"not the {format_bytes(memory_bytes)} asked for" if memory_bytes else "none was asked for"
        )
    words = f"{core_words(limits)}{_notes(core)}, {memory_words(limits)}{_notes(memory)}"
    own = answer["asker"]  # the requester can take back what it set itself
    if (len(core) > 1 and limits["core_source"] == own) or (
        len(memory) > 1 and limits["memory_source"] == own
    ):
        words += f"; `nvshare ctl quota unset {answer['pod']}` takes that back"
    return words


def origin(answer: dict[str, Any], which: str) -> str:
    """Who set the limit; empty if nobody did."""
    source = answer["limits"][which]
    if source == "ctl" and answer["asker"] == "user":
        return _BY_ROOT
    return SOURCE_WORDS.get(source, "")


def says_anything(answer: dict[str, Any]) -> bool:
    """Whether there is a limit, or one was requested."""
    return bool(answer["said"]) or describe(answer) != "no quota, no memory limit"


def _notes(words: list[str]) -> str:
    said = ", ".join(filter(None, words))
    return f" ({said})" if said else ""
