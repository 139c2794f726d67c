"""Rules for every test: a skip is a failure when all is required."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

REQUIRE_ALL = os.environ.get("NVSHARE_REQUIRE_ALL") == "1"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip into a failure under NVSHARE_REQUIRE_ALL=1: what did not run proves nothing."""
    del item, call
    report = yield
    if REQUIRE_ALL and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped although NVSHARE_REQUIRE_ALL=1: {report.longrepr}"
    return report
