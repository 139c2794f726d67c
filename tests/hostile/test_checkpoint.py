"""Whatever stands in the checkpoint's place, the daemon starts, and what can be used of it is used."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from nvshare.node import checkpoint, previous_state
from nvshare.node.checkpoint import FILE, VERSION
from nvshare.runtime import files
from nvshare.wire.messages import MessageType
from tests.hostile.strangers import NOBODY
from tests.node.harness import DaemonProcess, gpu_key, running

T = MessageType
BIG = 1 << 70


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """With a right checksum, as somebody would who knows how it is made."""
    content: dict[str, Any] = msgspec.json.decode(path.read_bytes().partition(b"\n")[2])
    change(content)
    body = msgspec.json.encode(content)
    head = f"nvshare-checkpoint {VERSION} {hashlib.sha256(body).hexdigest()}\n"
    path.write_bytes(head.encode() + body)


def changed_client(**changes: object) -> Callable[[dict[str, Any]], object]:
    return lambda content: content["clients"].append({**content["clients"][0], "client": 77, **changes})


def added(name: str, row: list[object]) -> Callable[[dict[str, Any]], object]:
    return lambda content: content[name].append(row)


def negative_totals(content: dict[str, Any]) -> list[Any]:
    return [-1, *content["present"][0][2][1:]]


BAD_ROWS = {
    "unknown source": (added("limits", ["default/x", "oracle", None, 5, None]), "oracle"),
    "no percent": (added("limits", ["default/x", "ctl", None, 0, None]), "within 1..100"),
    "percent of 500": (added("limits", ["default/x", "ctl", None, 500, None]), "within 1..100"),
    "percent in words": (added("limits", ["default/x", "ctl", None, "half", None]), "Expected"),
    "memory below none": (added("limits", ["default/x", "ctl", -1, None, None]), "memory limit -1"),
    "more than memory": (added("limits", ["default/x", "ctl", BIG, None, None]), "memory limit"),
    "no pod": (added("limits", ["\n", "ctl", None, 5, None]), "is not a pod name"),
    "pid below none": (changed_client(pid=-5), "pid -5"),
    "pid of nobody": (changed_client(pid=0), "pid 0"),
    "pid beyond all": (changed_client(pid=BIG), "pid"),
    "pid in words": (changed_client(pid="init"), "Expected"),
    "start beyond all": (changed_client(start_ticks=BIG), "start time"),
    "no client": (changed_client(client=0), "is not a client id"),
    "client twice": (lambda content: content["clients"].append(content["clients"][0]), "there twice"),
    "time beyond all": (changed_client(billed_busy_ns=BIG), "billed_busy_ns"),
    "more than the whole": (changed_client(part_permille=1001), "part_permille 1001"),
    "debt beyond all": (added("lags", ["default/x", gpu_key(), -BIG]), "lag"),
    "run of nobody": (added("runs", [0, 0, ["default/x", "", False]]), "pid 0"),
    "run of no pod": (added("runs", [1, 0, ["", "", False]]), "is not a pod name"),
    "rate beyond all": (
        lambda content: content["present"].append([*content["present"][0][:3], BIG]),
        "rate",
    ),
    "less than nothing": (
        lambda content: content["departed"].append(["default/x", gpu_key(), negative_totals(content)]),
        "gpu_time_ns -1",
    ),
}


@pytest.mark.parametrize("what", BAD_ROWS)
def test_rows_that_cannot_be_used_are_left_out_and_the_others_are_used(
    daemon: DaemonProcess, what: str
) -> None:
    change, why = BAD_ROWS[what]
    client = daemon.client("kept")
    daemon.set_quota("kept", core_percent=30)
    assert daemon.stop() == 0
    edit(daemon.private_dir / FILE, change)
    daemon.start()
    [line] = [line for line in daemon.log if "checkpoint set aside" in line]
    assert "what can be used of it is used" in line
    assert why in line
    assert daemon.control.ask("GET", "/v1/quotas/kept")["limits"]["core_percent"] == 30
    assert daemon.connect().resume(client).type is T.RESUMED
    assert (daemon.private_dir / f"{FILE}.unusable").is_file()


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.update(clients=5),
        lambda content: content.update(taken_ns=-BIG),
        lambda content: content.pop("scheduling_on"),
    ],
    ids=["no rows", "no time", "no switch"],
)
def test_a_whole_that_cannot_be_used_is_set_aside(
    daemon: DaemonProcess, change: Callable[[dict[str, Any]], object]
) -> None:
    daemon.client("lost")
    assert daemon.stop() == 0
    edit(daemon.private_dir / FILE, change)
    daemon.start()
    assert sum("checkpoint set aside" in line for line in daemon.log) == 1
    assert daemon.status()["expected_back"] == 0
    daemon.client("fresh").cycle()


def make_link(path: Path) -> None:
    target = path.parent.parent / "precious"
    target.write_text("precious")
    path.symlink_to(target)


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def make_foreign(path: Path) -> None:
    path.write_text("x")
    os.chown(path, NOBODY, NOBODY)


IN_ITS_PLACE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a pipe": (os.mkfifo, "it is a pipe"),
    "a directory": (Path.mkdir, "it is a directory"),
    "a device": (lambda path: os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5)), "it is a device"),
    "a link": (make_link, "it is a symbolic link"),
    "a large file": (make_large, "it is larger than"),
    "a stranger's file": (make_foreign, f"it belongs to user {NOBODY}"),
}


@pytest.mark.parametrize("what", IN_ITS_PLACE)
def test_what_is_no_file_of_ours_neither_hangs_nor_harms(open_path: Path, what: str) -> None:
    make, why = IN_ITS_PLACE[what]
    (open_path / "p").mkdir(mode=0o700)
    make(open_path / "p" / FILE)
    os.mkfifo(open_path / "p" / "token")
    with running(open_path) as daemon:
        [line] = [line for line in daemon.log if "checkpoint set aside" in line]
        assert why in line
        daemon.client("fresh").cycle()
        daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
        assert (daemon.private_dir / FILE).is_file()
        assert len(daemon.control.ask("GET", "/v1/token")["token"]) > 30
        if what == "a link":
            assert (open_path / "precious").read_text() == "precious"


def spoiled(directory: Path) -> Path:
    """A checkpoint of a daemon that has ended, with one row that cannot be used."""
    with running(directory) as daemon:
        daemon.client("kept")
        daemon.set_quota("kept", core_percent=30)
        assert daemon.stop() == 0
    edit(directory / "p" / FILE, changed_client(pid=-5))
    return directory / "p"


def test_a_file_with_a_bad_row_stays_until_another_is_written(open_path: Path) -> None:
    """Whoever starts and is killed at once, or cannot write, leaves what it found."""
    directory = spoiled(open_path)
    for _ in range(3):
        left = previous_state.load(directory, time.monotonic_ns())
        assert left.saved is not None
        assert [client.pod for client in left.saved.clients] == ["default/kept"]
        assert left.saved.limits == [("default/kept", "ctl", None, 30, None)]
    assert len([*directory.glob(f"{FILE}.unusable*")]) == 1, "kept aside once, however often it is read"
    checkpoint.write(directory, b"the next one")
    assert (directory / f"{FILE}.unusable").read_bytes() != b"the next one"


def test_limits_survive_clients_that_the_scheduler_cannot_take(
    open_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = spoiled(open_path)

    def trip(saved: checkpoint.Saved, _now_ns: int) -> None:
        if saved.clients:
            raise files.Unusable("tripped")

    monkeypatch.setattr(checkpoint, "rehearse", trip)
    saved = previous_state.load(directory, time.monotonic_ns()).saved
    assert saved is not None
    assert saved.clients == []
    assert saved.limits == [("default/kept", "ctl", None, 30, None)]


def test_what_is_set_aside_does_not_pile_up(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / FILE).write_text(str(number))
        assert files.set_aside(tmp_path / FILE).read_text() == str(number)
    assert sorted(path.read_text() for path in tmp_path.iterdir()) == ["3", "4", "5"]
