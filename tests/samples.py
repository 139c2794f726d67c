"""How much of a series `make test` runs; `make verify` runs all of it."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(sample: int, whole: int, first: int = 0) -> list[Any]:
    """Arguments for ``pytest.mark.parametrize``; all but the first few are left to `make verify`."""
    return [
        seed if seed < first + sample else pytest.param(seed, marks=pytest.mark.verify)
        for seed in range(first, first + whole)
    ]
