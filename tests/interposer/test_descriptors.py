"""A program that closes descriptors it does not own loses nothing of its own, and keeps to its limits."""

from __future__ import annotations

import pytest

from tests.interposer.harness import Node, line_of
from tests.interposer.test_progress import gaps
from tests.interposer.test_refused import share_of


@pytest.mark.parametrize("how", ["loop", "range", "duplicate"])
def test_nobody_writes_to_its_files_or_closes_them(node: Node, how: str) -> None:
    """30 times it closes all it finds and opens files in their places; wake-ups were written into them."""
    node.set_quota("closes", core_percent=25)
    child = node.start(node.program("closes"), how, pod="closes")
    assert line_of(child) == "closed", child.stderr.read() if child.stderr else ""
    node.daemon.wait_words("client resumed")  # how often depends: it may resume once a second
    assert 5 < share_of(node, child, 4) < 27, "its quota holds"
    assert [row["pid"] for row in node.clients()] == [child.pid]
    out, err = node.finish(child)
    assert gaps(out)[0] > 100
    assert err == ""
