"""GPU time as shown beside what the card counted; ``make verify-gpu-time`` has the whole table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interposer.gpu_time import MIXES, SAMPLE, measure, stopped_for_a_while, stopped_grows_by
from tests.interposer.harness import Node, line_of
from tests.noise import despite_noise

SAMPLE_PERCENT = 10.0
"""For a short run on a machine with other work; the table's bounds are for long ones."""


@pytest.mark.parametrize("mix", SAMPLE)
def test_gpu_time_is_what_the_card_counted(tmp_path: Path, mix: str) -> None:
    attempts = iter(range(10))

    def check() -> None:
        result = measure(tmp_path / str(next(attempts)), mix, 5.0)
        assert [row for row in result.rows if abs(row.error_percent) > SAMPLE_PERCENT] == []

    despite_noise(check)


def test_a_stopped_program_grows_by_nothing(tmp_path: Path) -> None:
    assert stopped_grows_by(tmp_path) == 0


def test_the_absence_of_a_program_that_was_stopped_is_no_gpu_time(tmp_path: Path) -> None:
    """It would be 3 s; what is still on its way, a few tenths."""
    card_ns, shown_ns = stopped_for_a_while(tmp_path)
    assert abs(shown_ns - card_ns) < 500_000_000


@pytest.mark.verify
@pytest.mark.parametrize("mix", MIXES)
def test_gpu_time_of_every_mix(tmp_path: Path, mix: str) -> None:
    result = measure(tmp_path, mix, 20.0)
    assert result.faults() == []


@pytest.mark.parametrize("percent", [100, 50])
def test_copies_from_the_host_are_no_work_of_the_card(node: Node, percent: int) -> None:
    """They take half a second; but for the first, nothing of that is shown."""
    node.set_quota("copies", core_percent=percent)
    child = node.start(node.program("copies"), "100", pod="copies")
    assert [line_of(child), line_of(child)] == ["cancellable", "done"]
    row = node.process(child.pid)
    assert row is not None
    assert row.busy_ns == 0
    [client] = node.clients()
    assert client["gpu_time_ns"] < 20_000_000
    node.finish(child)


def test_a_client_that_must_register_again_continues_to_report(node: Node) -> None:
    """With a daemon that knows nothing of it; it would be silent until it has worked as long as before."""
    child = node.start(node.program("duty"), "60", "5000", "1", "5000", "stream", pod="anew")

    def shown_ns() -> int:
        return sum(int(client["gpu_time_ns"]) for client in node.clients())

    def card_ns() -> int:
        row = node.process(child.pid)
        return 0 if row is None else row.busy_ns

    node.wait_for(lambda: shown_ns() > 2_000_000_000)
    node.daemon.kill()
    (node.daemon.private_dir / "checkpoint").unlink()
    node.daemon.start()
    node.wait_for(lambda: bool(node.clients()))
    before_ns = card_ns()
    node.wait_for(lambda: card_ns() > before_ns + 1_000_000_000)
    assert shown_ns() > 500_000_000


@pytest.mark.parametrize("stream", ["made", "own"])
def test_a_long_kernel_behind_a_short_one_is_counted_whole(node: Node, stream: str) -> None:
    """On a thread's own stream only that thread can mark it: its end was guessed from the short ones."""
    node.set_quota("long", core_percent=90)
    child = node.start(node.program("long_behind_short"), stream, "5", pod="long")
    assert [line_of(child), line_of(child)] == ["running", "done"]
    row = node.process(child.pid)
    assert row is not None
    assert row.busy_ns > 1_500_000_000
    node.wait_for(lambda: node.clients()[0]["gpu_time_ns"] > 0.9 * row.busy_ns)
    [client] = node.clients()
    assert client["gpu_time_ns"] < 1.1 * row.busy_ns
    node.finish(child)
