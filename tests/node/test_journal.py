"""Who registered, and what was set, since the last checkpoint: killed at once, the next daemon knows it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from nvshare.node import checkpoint, journal, previous_state
from nvshare.node.checkpoint import Saved, boot_id
from nvshare.node.journal import ClientAdded, ClientRemoved, Entry, Journal, LimitsStated
from tests.node.harness import gpu_key


def a_checkpoint(directory: Path, taken_ns: int, percent: int, **fields: int) -> None:
    limit = ("default/pod", "ctl", None, percent, None)
    saved = Saved(checkpoint.VERSION, boot_id(), taken_ns, True, [], [limit], [], [], **fields)  # type: ignore[arg-type]
    checkpoint.write(directory, checkpoint.encode(saved))


def percent_after(directory: Path) -> int | None:
    saved = previous_state.load(directory, 1000).saved
    return saved.limits[0][3] if saved is not None else None


def say(directory: Path, *percents: int) -> None:
    """By a daemon that starts with what is there, and is killed."""
    book = previous_state.load(directory, 1000).journal(directory, Counter())
    for percent in percents:
        book.append(LimitsStated("default/pod", "ctl", None, percent, None))
    book.close()


def test_what_a_checkpoint_covers_is_not_replayed(tmp_path: Path) -> None:
    say(tmp_path, 10, 20, 30)
    for covered, expected in ((0, 30), (2, 30), (3, 90)):
        a_checkpoint(tmp_path, 5, 90, journal=covered, journal_base=journal.NO_CHECKPOINT)
        assert percent_after(tmp_path) == expected
        left = previous_state.load(tmp_path, 1000)
        assert [entry.number for entry in left.entries] == list(range(covered + 1, 4))
        assert left.journal(tmp_path / "elsewhere", Counter()).number == 3


def test_it_is_replayed_on_its_own_checkpoints_alone(tmp_path: Path) -> None:
    """A daemon that knows no journal ran in between, and something else was set."""
    say(tmp_path, 10)
    assert percent_after(tmp_path) == 10, "there is no checkpoint yet"
    a_checkpoint(tmp_path, 5, 80)
    assert percent_after(tmp_path) == 80
    say(tmp_path)
    assert percent_after(tmp_path) == 80
    say(tmp_path, 20)
    assert percent_after(tmp_path) == 20, "begun on that checkpoint, though that cannot know it"
    say(tmp_path, 30)
    assert percent_after(tmp_path) == 30
    a_checkpoint(tmp_path, 6, 30, journal=1, journal_base=5)
    assert percent_after(tmp_path) == 30
    a_checkpoint(tmp_path, 7, 70)
    assert percent_after(tmp_path) == 70
    (tmp_path / checkpoint.FILE).unlink()
    assert percent_after(tmp_path) is None, "what it was begun on is gone"


def came(client: int) -> ClientAdded:
    return ClientAdded(1, client, 0, 5, 6, 7, False, "default/pod", gpu_key(), 8)


def book_in(directory: Path, events: Counter[str] | None = None) -> Journal:
    return Journal(directory, boot_id(), 0, [], 0, Counter() if events is None else events)


def read(directory: Path) -> list[Entry]:
    return journal.load(directory, boot_id()).entries


def test_a_torn_last_line_is_ignored(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    for entry in (came(1), ClientRemoved(2), LimitsStated("default/pod", "ctl", 5, None, True)):
        book.append(entry)
    raw = (tmp_path / journal.FILE).read_bytes()
    whole = read(tmp_path)
    assert [entry.number for entry in whole] == [1, 2, 3]
    ends = [number for number, byte in enumerate(raw) if byte == 10]
    for length in range(len(raw)):
        (tmp_path / journal.FILE).write_bytes(raw[:length])
        assert read(tmp_path) == whole[: max(0, sum(end < length for end in ends) - 1)]
    assert not (tmp_path / "journal.unusable").exists()


def test_what_is_covered_goes_and_the_rest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "REWRITTEN_BYTES", 500)
    book = book_in(tmp_path)
    for number in range(1, 11):
        book.append(came(number))
    book.covered(7)
    assert [entry.number for entry in read(tmp_path)] == [8, 9, 10]
    book.append(came(11))
    assert [entry.number for entry in read(tmp_path)] == [8, 9, 10, 11]
    book.covered(11)
    assert read(tmp_path) == []
    book.append(came(12))
    assert [entry.number for entry in read(tmp_path)] == [12]


def test_it_has_a_bound_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "BYTES_MAX", 1000)
    events: Counter[str] = Counter()
    book = book_in(tmp_path, events)
    for number in range(100):
        book.append(came(number + 1))
    assert (tmp_path / journal.FILE).stat().st_size <= 1000
    assert "full" in book.error
    assert events[journal.FAILED] > 80
    book.covered(book.number)
    book.append(came(200))
    assert [entry.number for entry in read(tmp_path)] == [101]
    assert book.error == ""


def test_what_could_not_be_written_is_written_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: Counter[str] = Counter()
    book = book_in(tmp_path, events)
    book.append(came(1))
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: len(data) // 2]))
    book.append(came(2))
    assert book.error
    assert [entry.number for entry in read(tmp_path)] == [1]
    monkeypatch.undo()
    book.append(came(3))
    assert [entry.number for entry in read(tmp_path)] == [1, 2, 3]
    assert (book.error, events[journal.FAILED]) == ("", 1)


def test_what_a_full_disk_costs_does_not_grow_with_what_is_unwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tried once a second, not with each; no part of a file is left behind."""
    events: Counter[str] = Counter()
    now_ns = 0
    book = Journal(tmp_path, boot_id(), 0, [], 0, events, lambda: now_ns)
    book.append(came(1))
    write = os.write
    tries = 0

    def half(file: int, data: bytes) -> int:
        nonlocal tries
        tries += 1
        return write(file, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    for number in range(2, 1002):
        book.append(came(number))
    assert tries == 2, "the line, and all anew"
    now_ns += journal.RETRY_NS
    for number in range(1002, 1102):
        book.append(came(number))
    assert (tries, events[journal.FAILED]) == (3, 1100)
    assert [entry.number for entry in read(tmp_path)] == [1]
    assert [path.name for path in tmp_path.iterdir()] == [journal.FILE]
    monkeypatch.undo()
    now_ns += journal.RETRY_NS
    book.append(came(1102))
    assert [entry.number for entry in read(tmp_path)] == list(range(1, 1103))
    assert book.error == ""


def test_what_is_unwritten_has_the_bound_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next daemon would not read it."""
    monkeypatch.setattr(journal, "BYTES_MAX", 2000)
    events: Counter[str] = Counter()
    now_ns = 0
    book = Journal(tmp_path, boot_id(), 0, [], 0, events, lambda: now_ns)
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda _file, _data: 0)
        for number in range(1, 1001):
            book.append(came(number))
            now_ns += journal.RETRY_NS
    assert sum(len(line) for _, line in book._uncovered) < 2000
    assert events[journal.FAILED] == 1000
    book.append(ClientRemoved(1))
    found = read(tmp_path)
    assert [entry.number for entry in found][:-1] == list(range(1, len(found)))
    assert 1000 < (tmp_path / journal.FILE).stat().st_size <= 2000


def test_a_torn_line_does_not_spoil_what_the_next_daemon_writes(tmp_path: Path) -> None:
    book_in(tmp_path).append(came(1))
    with (tmp_path / journal.FILE).open("ab") as file:
        file.write(b'0123abcd ["said","default/t')
    for left in (read(tmp_path), []):
        with (tmp_path / journal.FILE).open("ab") as file:
            file.write(b'0123abcd ["said","default/t')
        book = Journal(tmp_path, boot_id(), 0, left, 1, Counter())
        book.append(came(2))
        assert [entry.number for entry in read(tmp_path)] == [*(entry.number for entry in left), 2]
    assert not (tmp_path / "journal.unusable").exists()


def test_removed_it_is_made_again(tmp_path: Path) -> None:
    book = book_in(tmp_path)
    book.append(came(1))
    (tmp_path / journal.FILE).unlink()
    book.append(came(2))
    assert [entry.number for entry in read(tmp_path)] == [1, 2]


@pytest.mark.parametrize("what", ["journal", "directory"])
def test_what_was_renamed_is_made_again_with_all_that_is_not_covered(tmp_path: Path, what: str) -> None:
    directory = tmp_path / "p"
    directory.mkdir()
    kept = Journal(directory, boot_id(), 0, (), 0, Counter())
    kept.append(LimitsStated("default/early", "ctl", None, 20, None))
    if what == "journal":
        (directory / journal.FILE).rename(directory / "elsewhere")
    else:
        directory.rename(tmp_path / "elsewhere")
        directory.mkdir()
    kept.append(LimitsStated("default/late", "ctl", None, 33, None))
    found = journal.load(directory, boot_id()).entries
    assert [entry.pod for entry in found if isinstance(entry, LimitsStated)] == [
        "default/early",
        "default/late",
    ]
    kept.close()
