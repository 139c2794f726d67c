"""Quotas in the forms that an API server writes."""

from __future__ import annotations

import pytest

from nvshare.exporters.cluster.quantity import whole_quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("9500", 9500),
        ("10k", 10_000),
        ("9k", 9_000),
        ("1.5k", 1_500),
        ("2Ki", 2_048),
        ("1M", 1_000_000),
        ("3e3", 3_000),
        ("4E2", 400),
        ("1Gi", 1 << 30),
    ],
)
def test_whole_numbers_in_every_form(text: str, amount: int) -> None:
    assert whole_quantity(text) == amount


@pytest.mark.parametrize(
    "text", ["", "k", "-1", "1.5", "100m", "1ki", "10 k", "0x10", "١", "9" * 5000, "1e99", "9E", "1\n"]
)
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    assert whole_quantity(text) is None
