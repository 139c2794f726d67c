"""What the metrics' settings accept, and what is told when they do not."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nvshare.exporters.scheduler.service import bind
from nvshare.node.daemon import StartError
from tests.exporters.node import ROOT, free_port


@pytest.mark.parametrize(
    ("host", "shown"), [("127.0.0.1:", "127.0.0.1"), ("localhost:", "127.0.0.1"), ("", "0.0.0.0")]
)
def test_where_to_listen(host: str, shown: str) -> None:
    port = free_port()
    listening = bind(f"{host}{port}")
    assert listening.getsockname()[:2] == (shown, port)
    listening.close()


def test_listening_by_ipv6() -> None:
    if not Path("/proc/net/if_inet6").exists() or not Path("/proc/net/if_inet6").read_text():
        with pytest.raises(StartError, match="NVSHARE_METRICS_ADDR"):
            bind(f"[::1]:{free_port()}")
        return
    listening = bind(f"[::1]:{free_port()}")
    assert listening.family is socket.AF_INET6
    listening.close()


def scheduler(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    directories = ["--sock-dir", str(place / "s"), "--private-dir", str(place / "p")]
    return subprocess.run(
        [sys.executable, "-m", "nvshare", "scheduler", *directories, "--metrics", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=ROOT,
        check=False,
    )


@pytest.mark.parametrize("address", ["here", "1.2.3.4:0", "1.2.3.4:99999", "[::1", "a b:9402", ":9402"])
def test_a_bad_address_is_named(place: Path, address: str) -> None:
    done = scheduler(place, "--metrics-addr", address)
    assert done.returncode == 2
    assert f"NVSHARE_METRICS_ADDR={address!r} is not accepted; accepted: host:port" in done.stderr


def test_an_address_that_is_taken_is_named(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = scheduler(place, "--metrics-addr", address)
    assert done.returncode == 2
    assert f"NVSHARE_METRICS_ADDR={address}" in done.stderr
    assert "NVSHARE_METRICS_ENABLE=0" in done.stderr
    sockets = [path for path in place.rglob("*") if path.is_socket()]
    assert sockets == [], "it had listened for nobody: an answer would mean that it is up"


def test_a_bad_web_configuration_is_named(place: Path) -> None:
    file = place / "web.yml"
    file.write_text("http_server_config: {}")
    done = scheduler(place, "--metrics-addr", f"127.0.0.1:{free_port()}", "--web.config.file", str(file))
    assert done.returncode == 2
    assert "'http_server_config' in the file is not accepted" in done.stderr


def test_a_hash_that_bcrypt_would_never_match_is_named(place: Path) -> None:
    """It has the right length."""
    file = place / "web.yml"
    file.write_text("basic_auth_users: {ann: '$2b$10$" + "?" * 53 + "'}")
    done = scheduler(place, "--metrics-addr", f"127.0.0.1:{free_port()}", "--web.config.file", str(file))
    assert done.returncode == 2
    assert "the hash of 'ann' in basic_auth_users is not a bcrypt hash" in done.stderr
