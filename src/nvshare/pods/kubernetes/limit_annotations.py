"""Limits as annotations state them. Pure.

A value that is not accepted changes nothing: what the annotation last said stays, and the value is reported
once. An annotation that is removed says nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from nvshare.core.units import UnitError, parse_memory, parse_percent
from nvshare.pods.kubernetes.objects import LimitAnnotations

_VALUE_SHOWN: Final = 64
POLICIES: Final = {"cap": False, "share": True}


class Stated(NamedTuple):
    """What annotations or settings say on limits; None: nothing."""

    memory_bytes: int | None = None
    core_percent: int | None = None
    share: bool | None = None


NOTHING: Final = Stated()


def stricter(one: Stated, other: Stated) -> Stated:
    """Whatever either of them limits, as tightly as either does."""
    amounts = [amount for amount in (one.memory_bytes, other.memory_bytes) if amount]
    percents = [percent for percent in (one.core_percent, other.core_percent) if percent is not None]
    shares = (one.share, other.share)
    return Stated(
        min(amounts, default=None),
        min(percents, default=None),
        False if False in shares else None if None in shares else True,
    )


class BadValue(NamedTuple):
    annotation: str
    value: str  # as far as it is shown
    why: str


def _memory(text: str) -> int:
    amount_bytes = parse_memory(text)
    if not amount_bytes:
        raise UnitError(text, "more than 0", "; remove the annotation to lift the limit")
    return amount_bytes


def _policy(text: str) -> bool:
    if text not in POLICIES:
        raise UnitError(text, ", ".join(POLICIES))
    return POLICIES[text]


class _Kind(NamedTuple):
    annotation: str
    attribute: str  # of LimitAnnotations
    figure: str  # of Stated
    parse: Callable[[str], Any]


OF_LIMITS: Final = (
    _Kind("nvshare.com/gpu-memory-limit", "memory", "memory_bytes", _memory),
    _Kind("nvshare.com/gpu-core-limit", "core", "core_percent", parse_percent),
    _Kind("nvshare.com/gpu-core-policy", "policy", "share", _policy),
)
"""Of a pod its limits, of a namespace the defaults of its pods."""
OF_CEILINGS: Final = (
    _Kind("nvshare.com/gpu-memory-limit-max", "memory_max", "memory_bytes", _memory),
    _Kind("nvshare.com/gpu-core-limit-max", "core_max", "core_percent", parse_percent),
)
"""Of a namespace."""


def read(
    kinds: tuple[_Kind, ...], annotations: LimitAnnotations | None, before: Stated
) -> tuple[Stated, list[BadValue]]:
    """What is stated from now on, and the values that are not accepted."""
    if annotations is None:
        return NOTHING, []
    figures: dict[str, Any] = {}
    bad: list[BadValue] = []
    for annotation, attribute, figure, parse in kinds:
        text = getattr(annotations, attribute)
        if text is None:
            continue
        try:
            figures[figure] = parse(text.strip())
        except UnitError as error:
            figures[figure] = getattr(before, figure)
            bad.append(BadValue(annotation, _shown(text), _shown(f"accepted: {error.accepted}", 200)))
    return Stated(**figures), bad


def _shown(text: str, most: int = _VALUE_SHOWN) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
