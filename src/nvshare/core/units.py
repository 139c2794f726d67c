"""Amounts as people write them, to numbers and back.

A limit is written by people in annotations, flags and files, so what cannot be meant is refused by name:
signs, exponents, "nan", blanks inside, digits of other scripts.
"""

from __future__ import annotations

import re
from typing import Final

BYTES_MAX: Final = 2**63 - 1

_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_DECIMAL: Final = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_FACTORS: Final = {"": 1, **_BINARY, **_DECIMAL}
_AMOUNT: Final = re.compile(r"(?P<whole>[0-9]{1,19})(?:\.(?P<part>[0-9]{1,19}))?(?P<unit>(?:[KMGT]i?)?)B?")
_SMALL: Final = re.compile(
    r"(?P<number>[0-9]{1,19}(?:\.[0-9]{1,19})?) ?(?P<unit>[KMGTkmgt])(?P<binary>[iI]?)[Bb]?"
)
LEAST_MEMORY_BYTES: Final = 2**20
_PERCENT: Final = re.compile(r"[0-9]{1,3}")

ACCEPTED_BYTES: Final = (
    "a number with Ki, Mi, Gi, Ti (binary) or K, M, G, T (decimal), with or without B, or plain bytes"
)
ACCEPTED_PERCENT: Final = "a whole number from 1 to 100"


class UnitError(ValueError):
    """An amount that cannot be understood or is out of range."""

    def __init__(self, value: str, accepted: str, hint: str = "") -> None:
        super().__init__(f"{value!r} is not understood; accepted: {accepted}{hint}")
        self.value = value
        self.accepted = f"{accepted}{hint}"


def parse_bytes(text: str) -> int:
    """``"4Gi"``, ``"512MiB"``, ``"1.5G"``, ``"1024"`` in bytes; a fraction must come out as whole bytes."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise UnitError(text, ACCEPTED_BYTES, _hint(text))
    part = match["part"] or ""
    scaled = int(match["whole"] + part) * _FACTORS[match["unit"]]
    divisor = int("1" + "0" * len(part))
    amount_bytes, remainder = divmod(scaled, divisor)
    if remainder:
        raise UnitError(text, "whole bytes")
    if amount_bytes > BYTES_MAX:
        raise UnitError(text, f"up to {BYTES_MAX} bytes")
    return amount_bytes


def parse_memory(text: str) -> int:
    """As ``parse_bytes``, for memory of a GPU: 4 is a slip for 4Gi, and not 4 bytes. 0 is none."""
    amount_bytes = parse_bytes(text)
    if 0 < amount_bytes < LEAST_MEMORY_BYTES:
        hint = f"; did you mean {text}Gi?" if text.isdigit() and int(text) < 10_000 else ""
        raise UnitError(text, f"0, or at least {format_bytes(LEAST_MEMORY_BYTES)}", hint)
    return amount_bytes


def _hint(text: str) -> str:
    """For units in small letters, which some mean as binary and some as decimal."""
    match = _SMALL.fullmatch(text)
    if match is None:
        return ""
    number, unit = match["number"], match["unit"].upper()
    if match["binary"]:
        return f"; did you mean {number}{unit}i?"
    return f"; did you mean {number}{unit}i (binary) or {number}{unit} (decimal)?"


def parse_percent(text: str) -> int:
    """A compute quota: ``"1"`` to ``"100"``."""
    if not _PERCENT.fullmatch(text) or not 1 <= int(text) <= 100:
        raise UnitError(text, ACCEPTED_PERCENT)
    return int(text)


def format_bytes(amount_bytes: int) -> str:
    """For people: in the largest binary unit that leaves at least 1, with at most two decimals."""
    for unit, factor in reversed(_BINARY.items()):
        # Half a hundredth below the unit would print as 1024.00 of the one below.
        if abs(amount_bytes) * 1024 >= factor * 1023.995:
            return f"{_two_decimals(amount_bytes / factor)} {unit}B"
    return f"{amount_bytes} B"


def format_ns(duration_ns: int) -> str:
    """For people: ``"40 ms"``, ``"1.5 s"``, ``"2 h 05 min"``."""
    if duration_ns < 0:
        return "-" + format_ns(-duration_ns)
    for unit, factor_ns in (("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)):
        limit = 60 if unit == "s" else 1000
        if duration_ns < (limit - 0.005) * factor_ns:
            return f"{_two_decimals(duration_ns / factor_ns)} {unit}"
    seconds = (duration_ns + 5 * 10**8) // 10**9
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02} s"
    hours, minutes = divmod((duration_ns + 30 * 10**9) // (60 * 10**9), 60)
    return f"{hours} h {minutes:02} min"


def counted(number: int, noun: str, plural: str = "") -> str:
    """``"1 tenant"``, ``"2 tenants"``."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def times(number: int) -> str:
    """``"once"``, ``"twice"``, ``"3 times"``."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def _two_decimals(value: float) -> str:
    text = f"{value:.2f}"
    return text.rstrip("0").rstrip(".")
