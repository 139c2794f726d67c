"""What the metrics' settings accept, and what is told when they do not."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.exporters.node import ROOT, free_port
from tests.node.harness import running
from tests.runtime.certificates import make_certificate


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


def test_a_file_system_that_hangs_neither_stops_metrics_nor_the_end(place: Path) -> None:
    """A key that is a pipe nobody writes to: reading it again waits for ever, in a thread."""
    certificate, port = make_certificate(place), free_port()
    config = place / "web.yml"
    config.write_text("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")
    settings = {
        "NVSHARE_METRICS_ENABLE": "1",
        "NVSHARE_METRICS_ADDR": f"127.0.0.1:{port}",
        "NVSHARE_METRICS_WEB_CONFIG_FILE": str(config),
    }
    with running(place, environment=settings) as daemon:
        (place / "key.pem").unlink()
        os.mkfifo(place / "key.pem")
        trusting = ssl.create_default_context(cafile=str(certificate))
        with urllib.request.urlopen(f"https://localhost:{port}/healthz", timeout=60, context=trusting) as got:
            assert got.read() == b"OK\n"
        assert daemon.stop() == 0
        assert not daemon.path.exists()
        assert not any("made again" in line for line in daemon.log)
