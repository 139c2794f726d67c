"""Operators' tools that send one message and end at once; run in a pid namespace of its own.

Argument: a directory. Prints what came of it, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from nvshare.wire.dialects import ORIGINAL, V2
from nvshare.wire.messages import MessageType
from tests.node.harness import DaemonProcess, Raw, in_child, running

T = MessageType
ROUNDS = 10


def send_and_end(daemon: DaemonProcess, *kinds: MessageType) -> None:
    """A tool for each, one after the other, while the daemon looks elsewhere: all end before it accepts."""
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        for number, kind in enumerate(kinds):
            dialect = (ORIGINAL, V2)[number % 2]
            os.waitpid(in_child(lambda kind=kind, dialect=dialect: Raw(daemon.path, dialect).send(kind)), 0)  # type: ignore[misc]
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


def obeyed(daemon: DaemonProcess) -> int:
    """Of so many messages; the last word counts."""
    for number in range(ROUNDS):
        send_and_end(daemon, T.SCHED_OFF, T.SCHED_ON, T.SCHED_OFF)
        daemon.wait_words("scheduling set", 4 * number + 3)
        assert daemon.status()["scheduling_on"] is False
        Raw(daemon.path, V2).send(T.SCHED_ON)
        daemon.wait_words("scheduling set", 4 * number + 4)
        assert daemon.status()["scheduling_on"] is True
    return sum("scheduling set" in line for line in daemon.log)


def refused_beside_a_pod(daemon: DaemonProcess) -> int | None:
    """How many tools that have ended are refused while somebody is in a pod; None if nobody can be here."""
    uid = f"12345678-1234-1234-1234-{os.urandom(6).hex()}"
    cgroup = Path(f"/sys/fs/cgroup/freezer/kubepods/burstable/pod{uid}")
    try:
        cgroup.mkdir(parents=True)
    except OSError:
        return None
    reading, writing = os.pipe()

    def contained() -> None:
        (cgroup / "cgroup.procs").write_text(str(os.getpid()))
        os.write(writing, b"x")
        signal.pause()

    child = in_child(contained)
    try:
        os.read(reading, 1)
        send_and_end(daemon, T.SCHED_OFF)
        daemon.wait_words("may have been in a container")
        assert daemon.status()["scheduling_on"] is True
        return int(daemon.counters()["refused"]["not_permitted"])
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        cgroup.rmdir()


def of_others(daemon: DaemonProcess) -> dict[str, int]:
    """What a stranger's tool and a client come to that have ended, and who has not even said anything."""
    before = daemon.counters()["refused"]

    def stranger() -> None:
        os.setuid(65534)
        Raw(daemon.path).send(T.SCHED_OFF)

    def client() -> None:
        Raw(daemon.path).send(T.REGISTER, pod_name="dead", pod_namespace="default")

    os.kill(daemon.pid, signal.SIGSTOP)
    for act in (stranger, client, lambda: Raw(daemon.path).close()):
        os.waitpid(in_child(act), 0)
    os.kill(daemon.pid, signal.SIGCONT)
    status = daemon.wait_status(lambda s: s["counters"]["refused"].get("peer_dead", 0) == 2)
    assert status["counters"]["events"]["hung_up_unheard"] == 1
    assert status["scheduling_on"] is True
    assert status["clients"] == 0
    return {name: count - before.get(name, 0) for name, count in status["counters"]["refused"].items()}


def main() -> None:
    with running(Path(sys.argv[1])) as daemon:
        found: dict[str, object] = {"obeyed": obeyed(daemon), "others": of_others(daemon)}
        found["refused_beside_a_pod"] = refused_beside_a_pod(daemon)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
