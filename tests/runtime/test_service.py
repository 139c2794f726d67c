"""What every daemon gets from the runtime, shown by the smallest one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.exporters.node import ROOT, free_port


def start(file: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runtime.small_daemon", str(file)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def line_with(daemon: subprocess.Popen[str], words: str) -> str:
    assert daemon.stderr is not None
    for line in daemon.stderr:
        if words in line:
            return line
    raise AssertionError(f"the daemon ended without a line with {words!r}")


def get(address: str, path: str) -> str:
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        text: str = answer.read().decode()
        return text


def test_it_serves_takes_new_settings_and_ends_by_a_signal(tmp_path: Path) -> None:
    file, address = tmp_path / "small.yaml", f"127.0.0.1:{free_port()}"
    file.write_text(f"small_addr: {address}\n")
    with start(file, NVSHARE_SMALL_SIZ="3") as daemon:
        try:
            assert "did you mean NVSHARE_SMALL_SIZE?" in line_with(daemon, "NVSHARE_SMALL_SIZ is set")
            line_with(daemon, "small daemon started")
            assert "ZeroDivisionError" in line_with(daemon, "callback raised")
            assert get(address, "/metrics") == "small_size 1\n"
            assert get(address, "/readyz") == "OK\n"
            file.write_text("small_addr: 127.0.0.1:1\nsmall_size: 2\n")
            daemon.send_signal(signal.SIGHUP)
            assert "NVSHARE_SMALL_ADDR" in line_with(daemon, "setting needs a restart")
            assert "size=2" in line_with(daemon, "size applied")
            assert get(address, "/metrics") == "small_size 2\n"
            file.write_text("small_size: 10\n")
            daemon.send_signal(signal.SIGHUP)
            assert "small_size: '10' is not accepted" in line_with(daemon, "settings not reloaded")
        finally:
            daemon.send_signal(signal.SIGTERM)
        line_with(daemon, "small daemon ended")
    assert daemon.returncode == 0


@pytest.mark.parametrize(
    ("environment", "code", "words"),
    [
        ({"NVSHARE_SMALL_SIZE": "9"}, 2, "9 is too large to be small"),
        ({"SMALL_IN_USE": "1"}, 4, "another small daemon runs"),
    ],
)
def test_exit_codes(tmp_path: Path, environment: dict[str, str], code: int, words: str) -> None:
    file = tmp_path / "small.yaml"
    file.write_text("")
    with start(file, **environment) as daemon:
        line_with(daemon, words)
    assert daemon.returncode == code
