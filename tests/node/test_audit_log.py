"""The daemon's faults are told, counted and shown; and it makes none of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.core.audit import SAMPLED, Checking, Health
from nvshare.node.audit_log import LOGGED_AGAIN_NS, AuditLog
from nvshare.node.config import load
from nvshare.node.daemon import how_checked
from nvshare.runtime import logs
from nvshare.wire.codec import encode
from nvshare.wire.dialects import V3
from nvshare.wire.messages import Message, MessageType
from tests.node.harness import DaemonProcess, Raw, gpu_key, running

T = MessageType
MIB = 1 << 20


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.fields: list[dict[str, object]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.fields.append(record.fields)  # type: ignore[attr-defined]


@pytest.fixture
def kept() -> Iterator[Kept]:
    handler, before, level = Kept(), logs.LOGGER.handlers, logs.LOGGER.level
    logs.LOGGER.handlers = [handler]
    logs.LOGGER.setLevel(logging.INFO)
    yield handler
    logs.LOGGER.handlers = before
    logs.LOGGER.setLevel(level)


def test_books_are_audited_as_the_setting_says_and_never_fatally() -> None:
    assert how_checked(load({}, {}, None)) == SAMPLED
    assert how_checked(load({}, {"NVSHARE_CHECK": "1"}, None)) == Checking(every_events=1, fatal=False)
    assert not SAMPLED.fatal


def test_a_new_fault_is_reported_at_once_and_an_old_one_now_and_then(kept: Kept) -> None:
    up_ns = 100 * LOGGED_AGAIN_NS
    health = Health()
    watch = AuditLog(health)
    watch.look(up_ns + 1)
    assert kept.fields == []
    health.books_wrong, health.last_fault = 1, "3 != 4"
    watch.look(up_ns + 2)
    for now_ns in range(up_ns + 3, up_ns + 100):
        health.books_wrong += 1
        watch.look(now_ns)
    assert kept.fields == [{"fault": "3 != 4", "books_wrong": 1, "clock_went_back": 0}]
    health.clock_went_back, health.last_fault = 1, "time went back"
    watch.look(up_ns + 100)
    assert kept.fields[1:] == [{"fault": "time went back", "books_wrong": 98, "clock_went_back": 1}]
    health.clock_went_back = 7
    watch.look(up_ns + 100 + LOGGED_AGAIN_NS)
    watch.look(up_ns + 100 + 3 * LOGGED_AGAIN_NS)
    assert kept.fields[2:] == [{"fault": "time went back", "books_wrong": 98, "clock_went_back": 7}]


def register_with_limit(daemon: DaemonProcess, pod: str, limit_bytes: int) -> Raw:
    """As a library does whose environment states a limit: the core is told of it, then of the client."""
    raw = daemon.connect()
    limit = {"memory_limit_bytes": limit_bytes, "gpu_uuid": gpu_key()}
    first = Message(T.REGISTER, pod_name=pod, pod_namespace="default", **limit)  # type: ignore[arg-type]
    at_once = (first, Message(T.MEM_USED, arguments=(1 << 20, 0)), Message(T.MEM_USED, arguments=(0, 0)))
    raw.socket.sendall(b"".join(encode(message, V3) for message in at_once))
    raw.client_id = int(raw.expect(T.SCHED_ON).data, 16)
    raw.epoch = raw.expect(T.KEEP_ALIVE).arguments[1]
    return raw


def test_time_never_goes_back(open_path: Path) -> None:
    """Registering, limits, resuming and restarting feed the core several events from one callback."""
    with running(open_path) as daemon:
        for turn in range(3):
            clients = [register_with_limit(daemon, f"pod-{n}", (n + 1 + turn) * MIB) for n in range(8)]
            for number, client in enumerate(clients):
                daemon.set_quota(f"pod-{number}", core_percent=10, memory_bytes=(20 + number) * MIB)
                client.cycle()
            back = [daemon.connect() for _ in clients]
            for new, former in zip(back, clients, strict=True):
                assert new.resume(former, allocated_bytes=MIB).type is T.RESUMED
                new.cycle()
            daemon.wait_status(lambda status: bool(status["checkpoint_current"]))
            daemon.assert_healthy()
            daemon.kill()
            daemon.start()
            again = daemon.connect()
            assert again.resume(back[0], allocated_bytes=MIB).type is T.RESUMED
            again.round_trip()
            daemon.close_clients()
        daemon.assert_healthy()
