"""A sentence about the limits of a pod and who set them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from nvshare.core.limit_sources import CEILING, DEFAULT, NO_SOURCE, SOURCE_DESCRIPTIONS
from nvshare.core.units import format_bytes
from nvshare.pods.tenant_name import TenantName

_BY_ROOT: Final = "set by root with nvshare ctl quota set"
_OF_USER: Final = {DEFAULT: "root's default for its user", CEILING: "root's ceiling for its user"}


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
    return _source_words(answer, answer["limits"][which], which.removesuffix("_source"))


def _source_words(answer: dict[str, Any], source: str, figure: str) -> str:
    if source == "ctl" and answer["asker"] == "user":
        return _BY_ROOT
    if source not in (DEFAULT, CEILING):
        return SOURCE_DESCRIPTIONS.get(source, "")
    terms = answer["kubernetes"]
    if terms is None:
        return _OF_USER[source]
    namespace = f"namespace {terms['namespace']}" if terms["namespace"] else "its namespace"
    if source == CEILING:
        return f"the ceiling of {namespace}"
    whose = terms["default_of"].get(figure)
    if whose is None:
        return "the last known default"
    return f"the default of {namespace}" if whose == "namespace" else "the cluster's default"


def said_lines(answer: dict[str, Any]) -> list[str]:
    """What each source says, whether or not it counts."""
    lines = []
    for source, (memory_bytes, core_percent, share) in answer["said"].items():
        figures = {
            "core": None if core_percent is None else f"{core_percent} %",
            "memory": None
            if memory_bytes is None
            else format_bytes(memory_bytes)
            if memory_bytes
            else "no limit",
            "share": None if share is None else "share" if share else "cap",
        }
        by_origin: dict[str, list[str]] = {}
        for figure, words in figures.items():
            if words is not None:
                by_origin.setdefault(_source_words(answer, source, figure), []).append(words)
        lines += [f"  {', '.join(words)}: {whose}" for whose, words in by_origin.items()]
    return lines + _not_accepted_lines(answer)


def _not_accepted_lines(answer: dict[str, Any]) -> list[str]:
    """Annotations that have another value now than the one that counts."""
    return [
        f"  {bad['value']!r} of the {bad['of']}'s annotation {bad['annotation']} does not count: {bad['why']}"
        for bad in (answer["kubernetes"] or {}).get("not_accepted", ())
    ]


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
    return (
        bool(answer["said"] or _not_accepted_lines(answer)) or describe(answer) != "no quota, no memory limit"
    )


def _notes(words: list[str]) -> str:
    said = ", ".join(filter(None, words))
    return f" ({said})" if said else ""
