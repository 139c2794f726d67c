"""Whole numbers as the API server writes them: it makes ``10k`` of 10000."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_QUANTITY: Final = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{1,9})?)(?:(k|[MGTPE])|([KMGTPE])i|[eE]([0-9]{1,2}))?", re.ASCII
)
_POWERS: Final = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
AMOUNT_MAX: Final = 1 << 62


def whole_quantity(text: str) -> int | None:
    """None if it is no whole number, or a larger one than anything that is counted."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        return None
    number, thousands, kibi, exponent = found.groups(default="")
    amount = Fraction(number) * 10 ** int(exponent or 0)
    amount *= 1000 ** _POWERS[thousands] if thousands else 1024 ** _POWERS[kibi] if kibi else 1
    return int(amount) if amount.denominator == 1 and amount <= AMOUNT_MAX else None
