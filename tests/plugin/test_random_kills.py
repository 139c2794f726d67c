"""A few of the kills of ``make verify-plugin``."""

from __future__ import annotations

from pathlib import Path

from tests.plugin.random_kills import run


def test_no_device_is_lost_and_no_pod_touched(tmp_path: Path) -> None:
    trial = run(tmp_path, kills=6, seed=7)
    assert trial.longest_sec > 0
