"""A pytest plugin that records which functions each test calls, for ``mutants.py``.

Each process appends one line of JSON for each test that passes to a file of its own in the directory that
CALLED_FUNCTIONS names: the test, its duration, and the functions as path and first line. Functions that run
in other processes or threads are not seen.
"""

from __future__ import annotations

import cProfile
import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from types import CodeType
from typing import Any, Final

import pytest

VARIABLE: Final = "CALLED_FUNCTIONS"
_SOURCES: Final = f"{os.sep}src{os.sep}nvshare{os.sep}"


class CalledFunctions:
    def __init__(self, directory: Path) -> None:
        self._file = directory / f"{os.getpid()}.jsonl"
        self._failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._failed = False
        began = time.monotonic()
        profile = cProfile.Profile(subcalls=False, builtins=False)
        profile.enable()
        try:
            return (yield)
        finally:
            profile.disable()
            if not self._failed:
                self._write(item.nodeid, time.monotonic() - began, profile)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or not report.passed

    def _write(self, test: str, seconds: float, profile: cProfile.Profile) -> None:
        called = [entry.code for entry in profile.getstats() if isinstance(entry.code, CodeType)]
        functions = sorted(
            f"{code.co_filename.partition(_SOURCES)[2]}:{code.co_firstlineno}"
            for code in called
            if _SOURCES in code.co_filename
        )
        row: dict[str, Any] = {"test": test, "seconds": seconds, "functions": functions}
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def pytest_configure(config: pytest.Config) -> None:
    directory = os.environ.get(VARIABLE)
    if directory:
        config.pluginmanager.register(CalledFunctions(Path(directory)))
