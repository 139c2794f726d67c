"""A sentence about the limits of a pod and who set them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from nvshare.core.limit_sources import CEILING, DEFAULT, NO_SOURCE, SOURCE_DESCRIPTIONS
from nvshare.core.units import format_bytes
from nvshare.pods.tenant_name import TenantName

_BY_ROOT: Final = "set by root with nvshare ctl quota set"
_OF_KUBERNETES: Final = {
    DEFAULT: "the default of its namespace or of the cluster",
    CEILING: "the ceiling of its namespace",
}


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
    other_core = core_percent not in (None, limits["core_percent"])
    if other_core:
        core.append(
            f"not the {core_percent} % asked for" if core_percent != 100 else "no quota was asked for"
        )
    if asked["share"] and not limits["share"]:
        core.append("as a cap, since a share could exceed a ceiling")
    memory = [origin(answer, "memory_source")]
    if memory_bytes not in (None, limits["memory_bytes"]):
        memory.append(
            f"not the {format_bytes(memory_bytes)} asked for" if memory_bytes else "none was asked for"
        )
    words = f"{core_words(limits)}{_notes(core)}, {memory_words(limits)}{_notes(memory)}"
    own = answer["asker"]  # the requester can take back what it set itself
    if (other_core and limits["core_source"] == own) or (len(memory) > 1 and limits["memory_source"] == own):
        words += f"; `nvshare ctl quota unset {answer['pod']}` takes that back"
    return words


def origin(answer: dict[str, Any], which: str) -> str:
    """Who set the limit; empty if nobody did."""
    return _source_words(answer, answer["limits"][which])


def _source_words(answer: dict[str, Any], source: str) -> str:
    if source == "ctl" and answer["asker"] == "user":
        return _BY_ROOT
    if answer.get("kubernetes") and source in _OF_KUBERNETES:
        return _OF_KUBERNETES[source]
    return SOURCE_DESCRIPTIONS.get(source, "")


def said_lines(answer: dict[str, Any]) -> list[str]:
    """What each source says, whether or not it counts."""
    lines = []
    for source, (memory_bytes, core_percent, share) in answer["said"].items():
        words = [] if core_percent is None else [f"{core_percent} %"]
        words += [] if memory_bytes is None else [format_bytes(memory_bytes) if memory_bytes else "no limit"]
        words += [] if share is None else ["share" if share else "cap"]
        lines.append(f"  {', '.join(words)}: {_source_words(answer, source)}")
    return lines


def terms_note(answers: Iterable[dict[str, Any]]) -> list[str]:
    """A user's default and ceiling belong to a pod only while it is here."""
    without = [
        answer["pod"]
        for answer in answers
        if answer["said"]
        and not {DEFAULT, CEILING} & answer["said"].keys()
        and TenantName.of_key(answer["tenant"]).owner_uid is not None
    ]
    if not without:
        return []
    which = f"{without[0]} and {len(without) - 1} more" if len(without) > 1 else without[0]
    return [f"{which}: if its user has a default or a ceiling, that applies too as soon as the pod runs"]


def says_anything(answer: dict[str, Any]) -> bool:
    """Whether there is a limit, or one was requested."""
    return bool(answer["said"]) or describe(answer) != "no quota, no memory limit"


def _notes(words: list[str]) -> str:
    said = ", ".join(filter(None, words))
    return f" ({said})" if said else ""
