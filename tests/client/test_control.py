"""What the control client says if there is no daemon to answer it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from nvshare.client.control import ControlClient, NoDaemon


def test_a_missing_socket_and_one_that_nobody_listens_on_are_told_apart(tmp_path: Path) -> None:
    control = ControlClient(tmp_path)
    with pytest.raises(NoDaemon, match=f"there is no {control.path}"):
        control.ask("GET", "/v1/quotas")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as abandoned:
        abandoned.bind(str(control.path))
    with pytest.raises(NoDaemon, match=f"nobody listens on {control.path}"):
        control.ask("GET", "/v1/quotas")
