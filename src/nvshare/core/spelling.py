"""What a misspelt name was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LIKE: float = 0.7


def nearest(word: str, known: Iterable[str]) -> str:
    """The known name most like this one; empty if none is."""
    return next(iter(get_close_matches(word, list(known), 1, _LIKE)), "")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``"; did you mean 'core'?"``, or nothing; to put behind a message that names the word."""
    found = nearest(word, known)
    return f"; did you mean {found!r}?" if found else ""
