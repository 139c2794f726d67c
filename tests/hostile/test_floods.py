"""Strangers fill neither the log nor the list of GPUs."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from nvshare.gpu.inventory import BELIEVED_PER_OWNER
from nvshare.runtime import logs
from nvshare.wire.messages import MessageType
from tests.hostile.strangers import NOBODY, stranger
from tests.node.harness import PATIENCE_SEC, DaemonProcess, Raw, gpu_key, in_child

T = MessageType
FLOOD_SEC = 2.0
KINDS_OF_LINES = 8


def churn(path: Path) -> None:
    """Register and leave, each time with another limit of memory, as often as it goes."""
    ends = time.monotonic() + FLOOD_SEC
    number = 0
    while time.monotonic() < ends:
        number += 1
        with Raw(path) as raw:
            raw.send(T.REGISTER, gpu_uuid=gpu_key(), memory_limit_bytes=(1 + number % 7) << 30)
            raw.expect(T.SCHED_ON)


def kind_of(line: str) -> str:
    words = line.split(" ", 2)[2]
    return words.split("=")[0].rpartition(" ")[0]


def test_a_flood_of_registrations_and_limits_is_ten_lines_a_second(daemon: DaemonProcess) -> None:
    def flood() -> None:
        os.setuid(NOBODY)
        churn(daemon.path)

    began = time.monotonic()
    child = in_child(flood)
    daemon.wait_words("more like it")
    daemon.client("seen")
    daemon.wait_words("default/seen")  # what others do is told all the same
    os.waitpid(child, 0)
    registered = daemon.counters()["messages_received"]["REGISTER"]
    seconds = time.monotonic() - began + 2  # it begins and ends within one
    told = Counter(kind_of(line) for line in daemon.log)
    assert registered > 50 * FLOOD_SEC, "or it is no flood"
    assert told["client registered"] <= logs.REPEATS_PER_SEC * seconds + 1
    assert len(daemon.log) < KINDS_OF_LINES * logs.REPEATS_PER_SEC * seconds
    assert any(f"most_by=uid:{NOBODY}" in line for line in daemon.log)


def made_up_and_left(path: Path, number: int) -> str:
    """What a process hears that names a GPU of its own making; it has ended when this returns."""
    reading, writing = os.pipe()

    def register() -> None:
        answer = Raw(path).register(gpu=gpu_key(number))
        os.write(writing, answer.data.encode() if answer.type is T.REFUSED else b"taken")

    os.waitpid(in_child(register), 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        return answer.read()


def hold_made_up_gpus(path: Path) -> list[Raw]:
    held = [Raw(path) for _ in range(BELIEVED_PER_OWNER + 1)]
    answers = [raw.register(gpu=gpu_key(number)) for number, raw in enumerate(held)]
    assert [answer.data for answer in answers if answer.type is T.REFUSED] == ["too_many_gpus"]
    return held


def test_made_up_gpus_of_one_user_lock_nobody_else_out(daemon: DaemonProcess) -> None:
    with stranger(lambda: hold_made_up_gpus(daemon.path)):
        daemon.client("another", gpu_key(5000)).cycle()
        daemon.client("another", gpu_key(0)).cycle()


def test_places_of_made_up_gpus_are_free_when_their_clients_are_gone(daemon: DaemonProcess) -> None:
    keeps = daemon.client("keeps", gpu_key(7))
    heard = [made_up_and_left(daemon.path, 1000 + number) for number in range(BELIEVED_PER_OWNER)]
    assert set(heard[:-1]) == {"taken"}
    deadline = time.monotonic() + PATIENCE_SEC
    while made_up_and_left(daemon.path, 5000) != "taken":  # who has just left may come back for a second
        assert time.monotonic() < deadline
    assert daemon.status()["gpus"] <= BELIEVED_PER_OWNER
    keeps.cycle()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_what_is_kept_back_is_reported_by_the_flush_that_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(logs, "event", lambda _level, words, **fields: told.append((words, fields)))
    clock = Clock()
    repeats = logs.Repeats(clock)
    for _ in range(50):
        repeats.warning("refused", "uid:1", "refused one", pid=1)
    for _ in range(12):
        repeats.warning("refused", "uid:2")
    assert Counter(words for words, _ in told) == {"refused one": 10, "refused": 10}
    clock.now += 1
    repeats.flush()
    assert told.pop() == ("refused: 42 more like it", {"most_by": "uid:1"})
    repeats.flush()
    assert len(told) == 20, "once"
    for number in range(1000):
        repeats.warning("refused", f"uid:{number}")
    assert len(told) == 20 + logs.REPEATS_IN_ALL_PER_SEC, "whatever their number"
    repeats.flush(at_end=True)
    assert told.pop()[0] == "refused: 900 more like it"
