"""One user's clients leave descriptors for everybody else, for control and for metrics."""

from __future__ import annotations

import http.client
import resource
from pathlib import Path

import pytest

from nvshare.node import descriptors
from nvshare.node.bounds import Bounds
from nvshare.wire.messages import MessageType
from tests.exporters.node import free_port
from tests.hostile.strangers import stranger
from tests.node.harness import PATIENCE_SEC, Raw, running

T = MessageType
HARD = 512


def limited(soft: int, hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def fill(path: Path) -> list[Raw]:
    """Register until it is refused."""
    held = []
    while True:
        held.append(Raw(path))
        if held[-1].register().type is T.REFUSED:
            return held


def test_the_soft_limit_is_raised_to_the_hard_one(open_path: Path) -> None:
    with running(open_path, preexec_fn=lambda: limited(128, 4096)) as daemon:
        assert resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE) == (4096, 4096)
        [line] = [line for line in daemon.log if "too few file descriptors" in line]
        assert "limit=4096" in line
        assert "instead_of=4096" in line
        assert not any("out of file descriptors" in line for line in daemon.log)


def test_a_user_at_his_bound_leaves_descriptors_for_all_others(open_path: Path) -> None:
    port = free_port()
    settings = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": f"127.0.0.1:{port}"}
    options = {"bounds": {"clients_per_pod": 512}, "preexec_fn": lambda: limited(HARD, HARD)}
    with (
        running(open_path, environment=settings, **options) as daemon,
        stranger(lambda: fill(daemon.path)),
    ):
        daemon.client("of-another-user").cycle()
        status = daemon.status()
        assert status["clients"] > 32
        assert status["counters"]["refused"] == {"too_many_of_user": 1}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SEC)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        assert 'nvshare_scheduler_accept_pauses_total{reason="exhausted"} 0' in text
        assert f"nvshare_process_max_fds {HARD}" in text


def test_running_out_is_counted_always_and_logged_once(open_path: Path) -> None:
    with running(open_path, preexec_fn=lambda: limited(64, 64)) as daemon:
        silent = [daemon.connect() for _ in range(60)]
        daemon.wait_words("out of file descriptors or memory")
        for client in silent:
            client.close()
        status = daemon.wait_status(lambda found: found["unregistered"] == 0)
        assert status["counters"]["events"]["accept_paused_exhausted"] > 0
        assert sum("out of file descriptors or memory" in line for line in daemon.log) == 1


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096, 16_384, 65_536])
def test_what_is_permitted_fits(limit: int) -> None:
    bounds = descriptors.within(Bounds(), limit)
    assert descriptors.needed(bounds) <= limit or bounds.clients == 32
    assert bounds.clients_per_uid <= bounds.clients // 2 or limit >= descriptors.needed(Bounds())
    assert bounds.unregistered_per_owner <= bounds.unregistered
