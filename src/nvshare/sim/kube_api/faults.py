"""Faults on demand: what goes wrong, and at which point of an answer.

1. A rule names a point, a fault, and optionally the operation, the resource and how often it strikes. The
   first rule that fits strikes.
2. What a fault does depends on how far the answer has come: on the connection, before the headers, or in
   the body. A status code before the headers is an answer; in the body of a watch it is an ERROR event.
3. A hang ends when its rule is cleared; what was held back then goes on as if nothing had been. But a stream
   that hangs stays silent until the client ends it, as if the other end were lost: nothing that happened
   meanwhile, or happens later, comes through it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

RULES_MAX: Final = 256


class Point(StrEnum):
    ACCEPT = "accept"
    HANDSHAKE = "handshake"
    BEFORE_HEADERS = "before-headers"
    AFTER_HEADERS = "after-headers"
    BETWEEN_PAGES = "between-pages"
    MID_OBJECT = "mid-object"
    BETWEEN_EVENTS = "between-events"
    BOOKMARK = "bookmark"


class Fault(StrEnum):
    REFUSE = "refuse"
    HANG = "hang"
    DELAY = "delay"
    CUT = "cut"
    HALF_CLOSE = "half-close"
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    GONE = "410"
    TOO_MANY_REQUESTS = "429"
    INTERNAL_ERROR = "500"
    GARBAGE = "garbage"
    TRUNCATED_JSON = "truncated-json"
    WRONG_TYPE = "wrong-type"
    ENORMOUS = "enormous"
    EXPIRED_CERTIFICATE = "expired-certificate"
    WRONG_HOST = "wrong-host"
    UNKNOWN_AUTHORITY = "unknown-authority"


CERTIFICATE_FAULTS: Final = (Fault.EXPIRED_CERTIFICATE, Fault.WRONG_HOST, Fault.UNKNOWN_AUTHORITY)
STATUS_FAULTS: Final = (
    Fault.UNAUTHORIZED,
    Fault.FORBIDDEN,
    Fault.GONE,
    Fault.TOO_MANY_REQUESTS,
    Fault.INTERNAL_ERROR,
)
_ANYWHERE: Final = (Fault.HANG, Fault.DELAY, Fault.CUT, Fault.HALF_CLOSE, Fault.GARBAGE)
_IN_ANSWERS: Final = (*_ANYWHERE, *STATUS_FAULTS, Fault.TRUNCATED_JSON, Fault.WRONG_TYPE, Fault.ENORMOUS)
_POSSIBLE: Final[dict[Point, tuple[Fault, ...]]] = {
    Point.ACCEPT: (Fault.REFUSE, *_ANYWHERE),
    Point.HANDSHAKE: (*_ANYWHERE, *CERTIFICATE_FAULTS),
    Point.BEFORE_HEADERS: _IN_ANSWERS,
    Point.AFTER_HEADERS: _IN_ANSWERS,
    Point.BETWEEN_PAGES: _IN_ANSWERS,
    Point.MID_OBJECT: _IN_ANSWERS,
    Point.BETWEEN_EVENTS: _IN_ANSWERS,
    Point.BOOKMARK: _IN_ANSWERS,
}
_OPERATIONS: Final[dict[Point, tuple[str, ...]]] = {
    Point.BETWEEN_PAGES: ("list",),
    Point.BETWEEN_EVENTS: ("watch",),
    Point.BOOKMARK: ("watch",),
}


def combinations() -> list[tuple[str, Point, Fault]]:
    """Every operation of list and watch, point and fault that can be injected."""
    return [
        (operation, point, fault)
        for point, faults in _POSSIBLE.items()
        for operation in _OPERATIONS.get(point, ("list", "watch"))
        for fault in faults
    ]


@dataclass(slots=True, eq=False)
class Rule:
    point: Point
    fault: Fault
    operation: str = ""  # empty: any
    resource: str = ""  # empty: any
    times: int = 0  # 0: until it is cleared
    seconds: float = 1.0  # of a delay
    retry_after_sec: int = 1
    size_bytes: int = 64 << 20  # of an enormous object
    hits: int = 0

    def fits(self, point: Point, operation: str, resource: str) -> bool:
        return (
            self.point is point
            and (not self.times or self.hits < self.times)
            and self.operation in ("", operation)
            and self.resource in ("", resource)
        )


def parse_rule(given: dict[str, Any]) -> Rule:
    rule = Rule(**given)
    try:
        rule.point, rule.fault = Point(rule.point), Fault(rule.fault)
    except ValueError as error:
        raise ValueError(f"{error}; points: {', '.join(Point)}; faults: {', '.join(Fault)}") from None
    if rule.fault not in _POSSIBLE[rule.point]:
        accepted = ", ".join(_POSSIBLE[rule.point])
        raise ValueError(f"fault {rule.fault} is impossible at {rule.point}; possible: {accepted}")
    return rule


class FaultBoard:
    """The rules in force. ``changed`` is called whenever they change."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._cleared = asyncio.Event()
        self.hits: dict[str, int] = {}

    def add(self, rule: Rule) -> None:
        if len(self._rules) >= RULES_MAX:
            raise ValueError(f"{RULES_MAX} faults are in force already")
        self._rules.append(rule)

    def clear(self) -> None:
        self._rules.clear()
        self._cleared.set()
        self._cleared = asyncio.Event()

    def strike(self, point: Point, operation: str = "", resource: str = "") -> Rule | None:
        for rule in self._rules:
            if rule.fits(point, operation, resource):
                rule.hits += 1
                name = f"{rule.point}/{rule.fault}"
                self.hits[name] = self.hits.get(name, 0) + 1
                return rule
        return None

    @property
    def refuses(self) -> bool:
        """Whether nobody listens."""
        return any(rule.fault is Fault.REFUSE for rule in self._rules)

    async def until_cleared(self) -> None:
        await self._cleared.wait()
