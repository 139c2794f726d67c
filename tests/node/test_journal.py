"""Who registered, and what was set, since the last checkpoint: killed at once, the next daemon knows it."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.client.control import Rejected
from nvshare.node import checkpoint, journal, previous_state
from nvshare.node.checkpoint import Saved, boot_id
from nvshare.node.journal import ClientAdded, ClientRemoved, Entry, Journal, LimitsStated
from nvshare.wire.dialects import V2
from nvshare.wire.messages import MessageType
from tests.node.harness import DaemonProcess, gpu_key, running

T = MessageType
GIB = 1 << 30
SELDOM = {"checkpoint_every_ns": 3_600_000_000_000}
"""Whatever happens after the start and survives does so by the journal."""


@pytest.fixture
def daemon(open_path: Path) -> Iterator[DaemonProcess]:
    with running(open_path, bounds=SELDOM) as started:
        yield started


def killed(daemon: DaemonProcess) -> None:
    daemon.kill()
    daemon.start()


def limits(daemon: DaemonProcess, pod: str) -> dict[str, object]:
    found: dict[str, object] = daemon.control.ask("GET", f"/v1/quotas/{pod}")["limits"]
    return found


def test_who_registered_just_before_the_daemon_was_killed_is_expected(daemon: DaemonProcess) -> None:
    """Its sibling was leased the whole limit: 18 of 10 GiB in all."""
    daemon.set_quota("pair", memory_bytes=10 * GIB)
    first, second = daemon.client("pair"), daemon.client("pair")
    killed(daemon)
    assert daemon.status()["expected_back"] == 2
    back = daemon.connect()
    assert back.resume(second, allocated_bytes=GIB).type is T.RESUMED
    back.send(T.MEM_RESERVE, arguments=(1, 9 * GIB))
    back.round_trip()
    heard = {message.type for message in back.heard}
    assert not heard & {T.LEASE, T.MEM_RESERVED}, heard
    other = daemon.connect()
    assert other.resume(first, allocated_bytes=8 * GIB).type is T.RESUMED
    assert back.expect(T.MEM_REFUSED, T.MEM_RESERVED).named_arguments()["used_bytes"] == 9 * GIB


def test_limits_are_kept_before_the_command_is_answered(daemon: DaemonProcess) -> None:
    daemon.set_quota("kept", core_percent=33, memory_bytes=GIB)
    daemon.set_quota("changed", core_percent=10)
    daemon.set_quota("changed", core_percent=20)
    daemon.set_quota("withdrawn", core_percent=10)
    daemon.control.ask("DELETE", "/v1/quotas/withdrawn")
    killed(daemon)
    kept = limits(daemon, "kept")
    assert (kept["core_percent"], kept["memory_bytes"], kept["core_source"]) == (33, GIB, "ctl")
    assert limits(daemon, "changed")["core_percent"] == 20
    assert limits(daemon, "withdrawn")["core_percent"] == 100


def test_what_an_environment_stated_lives_as_long_as_the_pod(daemon: DaemonProcess) -> None:
    raw = daemon.connect()
    raw.send(T.REGISTER, pod_name="env", pod_namespace="default", gpu_uuid=gpu_key(), memory_limit_bytes=GIB)
    raw.client_id = int(raw.expect(T.SCHED_ON).data, 16)
    killed(daemon)
    assert limits(daemon, "env")["memory_bytes"] == GIB
    assert daemon.connect().resume(raw).type is T.RESUMED


def test_one_that_resumed_without_a_restart_is_known_by_its_new_id(daemon: DaemonProcess) -> None:
    """And only by that: what it was before is waited for by nobody."""
    first = daemon.client("pod")
    second = daemon.connect()
    assert second.resume(first).type is T.RESUMED
    assert second.client_id != first.client_id
    killed(daemon)
    assert daemon.status()["expected_back"] == 1
    assert daemon.connect().resume(second).type is T.RESUMED


def test_one_that_registered_afresh_is_known_once(daemon: DaemonProcess) -> None:
    first = daemon.client("pod")
    first.close()
    daemon.wait_words("client disconnected")
    second = daemon.client("pod")
    killed(daemon)
    assert daemon.status()["expected_back"] == 1
    assert daemon.connect().resume(second).type is T.RESUMED


def test_an_older_client_is_expected_too(daemon: DaemonProcess) -> None:
    daemon.set_quota("old", memory_bytes=10 * GIB)
    daemon.client("old", dialect=V2)
    killed(daemon)
    assert daemon.status()["expected_back"] == 1
    sibling = daemon.client("old")
    sibling.round_trip()
    assert T.LEASE not in {message.type for message in sibling.heard}


def test_killed_twice_everybody_is_still_known(daemon: DaemonProcess) -> None:
    first = daemon.client("one")
    killed(daemon)
    second = daemon.client("two")
    killed(daemon)
    assert daemon.status()["expected_back"] == 2
    for client in (first, second):
        assert daemon.connect().resume(client).type is T.RESUMED


def test_a_checkpoint_empties_it(open_path: Path) -> None:
    with running(open_path) as daemon:
        daemon.client("pod")
        path = daemon.private_dir / journal.FILE
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
        daemon.wait_status(lambda _status: path.read_bytes().count(b"\n") == 1)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"garbage\n", "it is not a journal"),
        (b"nvshare-journal 9 x\n", "it has version 9"),
        (b"nvshare-journal 2 elsewhere 0\n", "it is from another boot"),
        (b"x" * (17 << 20), "it is larger than"),
    ],
)
def test_what_cannot_be_used_is_set_aside(open_path: Path, content: bytes, why: str) -> None:
    (open_path / "p").mkdir(mode=0o700)
    (open_path / "p" / journal.FILE).write_bytes(content)
    with running(open_path) as daemon:
        [line] = [line for line in daemon.log if "journal set aside" in line]
        assert why in line
        assert (open_path / "p" / "journal.unusable").read_bytes() == content
        daemon.client("pod").cycle()


def test_a_pipe_in_its_place_hangs_nobody(open_path: Path) -> None:
    (open_path / "p").mkdir(mode=0o700)
    os.mkfifo(open_path / "p" / journal.FILE)
    with running(open_path) as daemon:
        assert any("it is a pipe" in line for line in daemon.log)
        daemon.client("pod").cycle()


def test_lines_that_cannot_be_used_are_left_out(daemon: DaemonProcess) -> None:
    kept = daemon.client("kept")
    daemon.kill()
    path = daemon.private_dir / journal.FILE
    head, _, rest = path.read_bytes().partition(b"\n")
    path.write_bytes(head + b"\n00000000 []\n" + rest + b"1234 torn")
    daemon.start()
    [line] = [line for line in daemon.log if "journal set aside" in line]
    assert "line 2: its checksum does not match" in line
    assert daemon.connect().resume(kept).type is T.RESUMED


def test_a_word_that_nobody_could_have_said_is_left_out_alone(daemon: DaemonProcess) -> None:
    daemon.set_quota("before", core_percent=30)
    kept = daemon.client("kept")
    daemon.kill()
    with (daemon.private_dir / journal.FILE).open("ab") as file:
        file.write(journal._line(LimitsStated("default/x", "oracle", None, 5, None, number=100)))
        file.write(journal._line(LimitsStated("default/x", "ctl", 1 << 64, None, None, number=101)))
        file.write(journal._line(LimitsStated("default/after", "ctl", None, 40, None, number=102)))
    daemon.start()
    [line] = [line for line in daemon.log if "journal set aside" in line]
    assert "entry 100: unknown source of limits 'oracle'" in line
    assert "unusable_entries=2" in line
    for _ in range(2):  # and what was set aside is not needed any more
        assert limits(daemon, "before")["core_percent"] == 30
        assert limits(daemon, "after")["core_percent"] == 40
        killed(daemon)
    assert daemon.connect().resume(kept).type is T.RESUMED


@pytest.mark.parametrize("memory_bytes", [1 << 63, 1 << 64, 1 << 80])
def test_a_limit_that_is_refused_is_not_in_it(daemon: DaemonProcess, memory_bytes: int) -> None:
    kept = daemon.client("pod")
    with pytest.raises(
        Rejected, match=rf"memory limit {memory_bytes} is not within 0\.\.{(1 << 63) - 1} bytes"
    ):
        daemon.set_quota("pod", memory_bytes=memory_bytes)
    kept.round_trip()
    assert b"said" not in (daemon.private_dir / journal.FILE).read_bytes()
    killed(daemon)
    assert not [line for line in daemon.log if "journal set aside" in line]
    assert daemon.connect().resume(kept).type is T.RESUMED


def test_an_environment_may_state_any_number(daemon: DaemonProcess) -> None:
    raw = daemon.connect()
    most = (1 << 64) - 1
    raw.send(T.REGISTER, pod_name="env", pod_namespace="default", gpu_uuid=gpu_key(), memory_limit_bytes=most)
    raw.client_id = int(raw.expect(T.SCHED_ON).data, 16)
    killed(daemon)
    assert limits(daemon, "env")["memory_bytes"] == (1 << 63) - 1
    assert daemon.connect().resume(raw).type is T.RESUMED


# ---- with a checkpoint --------------------------------------------------------------------------


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


def test_that_it_is_ignored_is_told(daemon: DaemonProcess) -> None:
    daemon.set_quota("pod", core_percent=10)
    daemon.kill()
    a_checkpoint(daemon.private_dir, 1, 80)
    daemon.start()
    [line] = [line for line in daemon.log if "journal ignored" in line]
    assert "it was begun on another checkpoint" in line
    assert limits(daemon, "pod")["core_percent"] == 80
    daemon.set_quota("pod", core_percent=20)
    killed(daemon)
    assert limits(daemon, "pod")["core_percent"] == 20


# ---- the file alone -----------------------------------------------------------------------------


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


def test_renamed_while_the_daemon_runs_it_still_knows_what_was_answered(daemon: DaemonProcess) -> None:
    daemon.client("early")
    (daemon.private_dir / journal.FILE).rename(daemon.private_dir / "elsewhere")
    daemon.set_quota("late", core_percent=33)
    killed(daemon)
    assert limits(daemon, "late")["core_percent"] == 33
    assert daemon.status()["expected_back"] == 1
