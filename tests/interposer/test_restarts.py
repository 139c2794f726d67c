"""A pod's memory limit outlives the daemon: a short sample of `make verify-restarts`."""

from __future__ import annotations

from tests.interposer.restarts import running


def test_no_byte_too_many_over_eight_restarts() -> None:
    with running(seed=7) as run:
        report = run.go(kills=6, clean=2)
    assert report.over_bytes == 0, "\n".join(report.lines())
    assert report.granted > 100
    assert report.refused > 10, "they did come to the limit"
    assert (report.kills, report.clean) == (6, 2)
