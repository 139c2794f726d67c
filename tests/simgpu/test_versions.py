"""cuGetProcAddress of the simulated driver answers by the versions of NVIDIA's own list."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

from nvshare.sim.gpu import library_directory
from tests.interposer.nvidia_headers import Listed, listed_functions

PER_THREAD: Final = 2
ADDRESSES_OF_64_BITS: Final = 3020
RENAMED: Final = {("cuGraphInstantiate", 12000): "cuGraphInstantiateWithFlags"}


@cache
def driver() -> ctypes.CDLL:
    return ctypes.CDLL(str(library_directory() / "libcuda.so.1"))


def answered(name: str, version: int, flags: int) -> int | None:
    found = ctypes.c_void_p()
    code = driver().cuGetProcAddress_v2(
        name.encode(), ctypes.byref(found), version, ctypes.c_uint64(flags), ctypes.byref(ctypes.c_int())
    )
    assert code == 0
    return found.value


def address_of(symbol: str) -> int | None:
    if not hasattr(driver(), symbol):
        return None
    return ctypes.cast(getattr(driver(), symbol), ctypes.c_void_p).value


def symbol_of(row: Listed, rows: list[Listed]) -> str:
    """A name's versions are numbered by age; the twin has its suffix behind the number."""
    versions = sorted({other.since for other in rows if other.name == row.name and not other.variant})
    number = sum(since <= row.since for since in versions)
    symbol = row.name if number == 1 else f"{row.name}_v{number}"
    return f"{symbol}_{row.variant}" if row.variant else symbol


def test_each_version_is_answered_with_its_own_function() -> None:
    rows = listed_functions()
    wrong, compared = [], 0
    for row in rows:
        expected = address_of(symbol_of(row, rows))
        if expected is None:
            continue  # the driver lacks it, or has it only in other versions: see below
        compared += 1
        if answered(row.name, row.since, PER_THREAD if row.variant else 0) != expected:
            wrong.append((row, symbol_of(row, rows)))
    assert wrong == []
    assert compared > 450


def test_a_function_for_32_bit_addresses_is_not_answered_by_a_newer_one() -> None:
    rows = [row for row in listed_functions() if not row.variant]
    old = [row for row in rows if row.since < ADDRESSES_OF_64_BITS and address_of(row.name) is None]
    newer = {row.name for row in rows if row.since == ADDRESSES_OF_64_BITS}
    asked = [row for row in old if row.name in newer]
    assert len(asked) > 30
    assert [row for row in asked if answered(row.name, row.since, 0) is not None] == []


def test_a_name_that_has_become_another_functions() -> None:
    for (name, version), symbol in RENAMED.items():
        assert answered(name, version, 0) == address_of(symbol)
