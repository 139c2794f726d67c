"""What a daemon knows of the previous one that was killed: checkpoint and journal."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.client.control import Rejected
from nvshare.node import journal
from nvshare.node.journal import LimitsStated
from nvshare.wire.dialects import V2
from nvshare.wire.messages import MessageType
from tests.node.harness import DaemonProcess, gpu_key, running
from tests.node.test_journal import a_checkpoint

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


def test_a_client_that_registered_just_before_the_daemon_was_killed_is_expected(
    daemon: DaemonProcess,
) -> None:
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


def test_only_an_impossible_limit_is_left_out(daemon: DaemonProcess) -> None:
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


def test_that_it_is_ignored_is_reported(daemon: DaemonProcess) -> None:
    daemon.set_quota("pod", core_percent=10)
    daemon.kill()
    a_checkpoint(daemon.private_dir, 1, 80)
    daemon.start()
    [line] = [line for line in daemon.log if "journal ignored" in line]
    assert "it was started on another checkpoint" in line
    assert limits(daemon, "pod")["core_percent"] == 80
    daemon.set_quota("pod", core_percent=20)
    killed(daemon)
    assert limits(daemon, "pod")["core_percent"] == 20


def test_renamed_while_the_daemon_runs_it_still_knows_what_was_answered(daemon: DaemonProcess) -> None:
    daemon.client("early")
    (daemon.private_dir / journal.FILE).rename(daemon.private_dir / "elsewhere")
    daemon.set_quota("late", core_percent=33)
    killed(daemon)
    assert limits(daemon, "late")["core_percent"] == 33
    assert daemon.status()["expected_back"] == 1
