"""What the scrape benchmark judges: the callbacks of scrapes, however many others there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import scrape
from benchmarks.lock_cycles import servers
from benchmarks.scrape import Held
from nvshare.node.counters import Counters


def counted(counters: Counters) -> dict[str, Any]:
    found: dict[str, Any] = counters.as_dict()
    return found


def test_slow_steps_show_among_any_number_of_messages() -> None:
    counters = Counters()
    counters.scrape_steps.add(9_000_000_000)  # before anybody watched
    steps, whole = Held("scrape_steps"), Held("callbacks")
    for _ in range(2):
        for held in (steps, whole):
            held.begin(counted(counters))
        for _ in range(50_000):
            counters.callbacks.add(20_000)
        for duration_ns in [100_000] * 90 + [3_000_000] * 10:
            counters.callbacks.add(duration_ns)
            counters.scrape_steps.add(duration_ns)
        for held in (steps, whole):
            held.end(counted(counters))
    assert (steps.count, whole.count) == (200, 100_200)
    assert 1 << 14 < whole.p99_ns() < 1 << 15, "drowned"
    assert steps.p99_ns() == pytest.approx((1 << 21) * 1.9), "of twenty in this bucket the eighteenth"


def test_what_was_not_built_is_named_with_how_to_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(servers, "ROOT", tmp_path)
    monkeypatch.setattr(servers, "BUILD", tmp_path / "build" / "benchmarks")
    monkeypatch.setattr("sys.argv", ["scrape"])
    assert scrape.main() == 2
    assert capsys.readouterr().err == (
        "not built: build/benchmarks/load; build with: make build/benchmarks/load\n"
    )
    (tmp_path / "build" / "benchmarks").mkdir(parents=True)
    (tmp_path / "build" / "benchmarks" / "load").touch()
    assert servers.what_to_build("load") == ""
