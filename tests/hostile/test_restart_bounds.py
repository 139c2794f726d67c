"""Who is expected back after a restart keeps its place, so that a restart is no way to have more places."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from nvshare.node.checkpoint import FILE
from nvshare.wire.messages import MessageType
from tests.hostile.strangers import stranger
from tests.hostile.test_checkpoint import edit
from tests.hostile.test_descriptors import HARD, fill, limited
from tests.node.harness import DaemonProcess, Raw, running

T = MessageType


def refused(path: Path, pod: str, reason: str) -> Raw:
    raw = Raw(path)
    assert raw.register(pod).data == reason
    return raw


def registered(path: Path) -> Raw:
    raw = Raw(path)
    assert raw.register().type is T.SCHED_ON
    return raw


def test_the_bounds_count_clients_that_are_expected_back(open_path: Path) -> None:
    with running(open_path, bounds={"clients_per_pod": 3, "clients_per_uid": 5}) as daemon:
        clients = [daemon.client(name) for name in ("a", "a", "a", "b", "b")]
        for _ in range(2):
            daemon.kill()
            daemon.start()
            with stranger(lambda: refused(daemon.path, "a", "too_many_of_user"), uid=0):
                pass
        for number, former in enumerate(clients):
            clients[number] = daemon.connect()
            assert clients[number].resume(former).type is T.RESUMED, "its own place was kept for it"
        clients.pop().close()
        clients.pop().close()
        daemon.wait_words("client disconnected", 2)
        assert daemon.status()["clients"] == 5


def test_a_pods_bound_counts_clients_that_are_expected_back(open_path: Path) -> None:
    with running(open_path, bounds={"clients_per_pod": 2}) as daemon:
        clients = [daemon.client("a") for _ in range(2)]
        daemon.kill()
        daemon.start()
        with stranger(lambda: refused(daemon.path, "a", "too_many_in_pod"), uid=0):
            assert all(daemon.connect().resume(client).type is T.RESUMED for client in clients)
        assert daemon.status()["clients"] == 2


def descriptors_of(daemon: DaemonProcess) -> int:
    return len(os.listdir(f"/proc/{daemon.pid}/fd"))


def test_a_user_who_never_resumes_uses_up_no_descriptors(open_path: Path) -> None:
    options = {"bounds": {"clients_per_pod": 512}, "preexec_fn": lambda: limited(HARD, HARD)}
    with running(open_path, **options) as daemon, ExitStack() as strangers:
        for _ in range(4):
            strangers.enter_context(stranger(lambda: fill(daemon.path)))
            daemon.kill()
            daemon.start()
        status = daemon.status()
        assert 32 < status["expected_back"] < HARD // 4, "his bound, once"
        assert descriptors_of(daemon) < HARD // 4, "one for each process"
        daemon.client("of-another-user").cycle()


def test_many_rows_of_one_process_are_bounded_and_watched_by_one_descriptor(open_path: Path) -> None:
    """A formally right checkpoint that says more than any living daemon would have let in."""
    with running(open_path, preexec_fn=lambda: limited(1024, 1024)) as daemon:
        client = daemon.client("many")
        daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
        usual = descriptors_of(daemon)
        daemon.kill()

        def multiply(content: dict[str, list[dict[str, object]]]) -> None:
            [row] = content["clients"]
            content["clients"] += [{**row, "client": 1000 + number} for number in range(1100)]

        edit(daemon.private_dir / FILE, multiply)
        daemon.start()
        assert 2 <= daemon.status()["expected_back"] <= 256
        assert descriptors_of(daemon) <= usual
        assert any("is not expected back" in line and "too_many" in line for line in daemon.log)
        assert daemon.connect().resume(client).type is T.RESUMED
        with stranger(lambda: registered(daemon.path)):
            assert daemon.status()["clients"] == 2, "who did not do this has a place"
