"""Amounts as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nvshare.core.units import (
    BYTES_MAX,
    UnitError,
    format_bytes,
    format_ns,
    parse_bytes,
    parse_memory,
    parse_percent,
)


@pytest.mark.parametrize(
    ("text", "amount_bytes"),
    [
        ("0", 0),
        ("1024", 1024),
        ("7B", 7),
        ("4Ki", 4096),
        ("4KiB", 4096),
        ("512Mi", 512 * 2**20),
        ("512MiB", 512 * 2**20),
        ("4Gi", 4 * 2**30),
        ("4GiB", 4 * 2**30),
        ("2Ti", 2 * 2**40),
        ("2TiB", 2 * 2**40),
        ("4K", 4000),
        ("4KB", 4000),
        ("4M", 4 * 10**6),
        ("4G", 4 * 10**9),
        ("4GB", 4 * 10**9),
        ("4T", 4 * 10**12),
        ("1.5Gi", 3 * 2**29),
        ("0.25K", 250),
        (str(BYTES_MAX), BYTES_MAX),
    ],
)
def test_bytes(text: str, amount_bytes: int) -> None:
    assert parse_bytes(text) == amount_bytes


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "-1",
            "+1",
            "nan",
            "inf",
            "1e9",
            "4 Gi",
            "4gi",
            "4i",
            "Gi",
            "4Gib",
            "4X",
            "4GiBB",
            "0x10",
            "٤",
        ),
        *("1_000", "4Gi\n", "1.", ".5Gi", "0.1", "0.0001Ki", str(BYTES_MAX + 1), "8388608Ti", "9" * 25),
    ],
)
def test_bytes_refused(text: str) -> None:
    with pytest.raises(UnitError) as failure:
        parse_bytes(text)
    assert repr(text) in str(failure.value)
    assert "accepted: " in str(failure.value)


@pytest.mark.parametrize(("text", "percent"), [("1", 1), ("30", 30), ("100", 100), ("007", 7)])
def test_percent(text: str, percent: int) -> None:
    assert parse_percent(text) == percent


@pytest.mark.parametrize("text", ["0", "101", "-5", "30%", "1.5", "", "nan", " 5", "٥"])
def test_percent_refused(text: str) -> None:
    with pytest.raises(UnitError, match="a whole number from 1 to 100"):
        parse_percent(text)


@pytest.mark.parametrize(
    ("amount_bytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (2**20 - 1, "1 MiB"),
        (4 * 2**30, "4 GiB"),
        (2**40, "1 TiB"),
        (5 * 2**50, "5120 TiB"),
        (-(2**30), "-1 GiB"),
    ],
)
def test_bytes_for_people(amount_bytes: int, text: str) -> None:
    assert format_bytes(amount_bytes) == text


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1500, "1.5 us"),
        (40 * 10**6, "40 ms"),
        (999_999_999, "1 s"),
        (1_500_000_000, "1.5 s"),
        (59_999_999_999, "1 min 00 s"),
        (90 * 10**9, "1 min 30 s"),
        (3599 * 10**9 + 999_999_999, "1 h 00 min"),
        (7500 * 10**9, "2 h 05 min"),
        (-(10**9), "-1 s"),
    ],
)
def test_durations_for_people(duration_ns: int, text: str) -> None:
    assert format_ns(duration_ns) == text


@settings(deadline=None)
@given(st.integers(0, 2**50))
def test_what_is_shown_is_within_half_a_hundredth_of_its_unit(amount_bytes: int) -> None:
    number, unit = format_bytes(amount_bytes).split()
    shown_bytes = float(number) * parse_bytes("1" + unit)
    assert abs(shown_bytes - amount_bytes) <= 0.0051 * parse_bytes("1" + unit)


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_a_unit_error(text: str) -> None:
    try:
        amount_bytes = parse_bytes(text)
    except UnitError:
        return
    assert 0 <= amount_bytes <= BYTES_MAX


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("4", "accepted: 0, or at least 1 MiB; did you mean 4Gi?"),
        ("4Ki", "accepted: 0, or at least 1 MiB"),
        ("4g", "did you mean 4Gi (binary) or 4G (decimal)?"),
        ("4gb", "did you mean 4Gi (binary) or 4G (decimal)?"),
        ("1.5 GB", "did you mean 1.5Gi (binary) or 1.5G (decimal)?"),
        ("4gi", "did you mean 4Gi?"),
    ],
)
def test_a_slip_in_an_amount_of_memory_gets_a_hint(text: str, hint: str) -> None:
    with pytest.raises(UnitError) as caught:
        parse_memory(text)
    assert str(caught.value).endswith(hint)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", ["0", "1048576", "17179869184", "1Mi"])
def test_memory_in_plain_bytes(text: str) -> None:
    assert parse_memory(text) == parse_bytes(text)
