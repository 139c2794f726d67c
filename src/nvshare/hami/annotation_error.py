"""An annotation that cannot be used: one error for all parsers."""

from __future__ import annotations

from typing import Final

_SHOWN: Final = 80


class AnnotationError(ValueError):
    """``str`` says what is wrong and shows the part that is."""


def wrong(what: str, part: object) -> AnnotationError:
    text = str(part)
    return AnnotationError(f"{what}: {text if len(text) <= _SHOWN else text[: _SHOWN - 1] + '…'!r}")


def whole_number(text: str, what: str, most: int = 1 << 53) -> int:
    """Decimal digits and nothing else, so that a number has one spelling."""
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > most:
        raise wrong(f"{what} is no whole number", text)
    return int(text)
