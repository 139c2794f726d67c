"""What the operator learns while clients cannot find the daemon's socket."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nvshare.node.listening_sockets import CLIENTS, ListeningSocket


def test_a_lasting_reason_is_logged_once(open_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    directory = open_path / "s"
    listening = ListeningSocket(directory, CLIENTS, backlog=1)
    shutil.rmtree(directory)
    directory.write_text("in the way")
    for _ in range(3):
        listening.look()
    assert "was replaced" in listening.error
    assert caplog.messages == ["new clients cannot reach the daemon"]
    directory.unlink()
    listening.look()
    assert listening.error == ""
    shutil.rmtree(directory)
    directory.write_text("in the way again")
    listening.look()
    assert caplog.messages.count("new clients cannot reach the daemon") == 2, "it is news again"
