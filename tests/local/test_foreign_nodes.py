"""Root's commands on a directory that another user prepared: nothing in it is believed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from nvshare.local.state import NodeState, node_directory, write_state
from nvshare.pods.peer import process_of
from tests.local.harness import Place

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")

SOMEBODY = 62_102


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def prepared(bare: Place, bystander: subprocess.Popen[bytes]) -> Path:
    """The directory of a node that says the bystander is its supervisor. It is still root's."""
    directory = node_directory(bare.private_dir)
    directory.mkdir(parents=True, mode=0o700)
    found = process_of(bystander.pid)
    assert found is not None
    write_state(bare.private_dir, NodeState(found.pid, found.start_ticks, "/x"))
    return directory


def give_away(*paths: Path) -> None:
    for path in paths:
        os.chown(path, SOMEBODY, SOMEBODY, follow_symlinks=False)


@pytest.mark.parametrize("given", ["everything", "node", "file"])
@pytest.mark.parametrize("command", [("down",), ("sim", "status"), ("sim", "fault", "lost", "0")])
def test_no_process_of_a_strangers_choice_is_signalled(
    bare: Place, prepared: Path, bystander: subprocess.Popen[bytes], command: tuple[str, ...], given: str
) -> None:
    state = prepared / "state.json"
    give_away(
        *{"everything": (bare.private_dir, prepared, state), "node": (prepared,), "file": (state,)}[given]
    )
    result = bare.nvshare(*command)
    assert result.returncode == (5 if command == ("down",) else 2), result
    assert f"belongs to user {SOMEBODY}" in result.stderr
    assert str(bare.private_dir) in result.stderr
    assert bystander.poll() is None


def test_a_link_to_a_node_is_no_node(bare: Place, prepared: Path, bystander: subprocess.Popen[bytes]) -> None:
    real = prepared.rename(bare.directory / "real")
    prepared.symlink_to(real)
    result = bare.nvshare("down")
    assert (result.returncode, "is a symbolic link" in result.stderr) == (5, True)
    assert bystander.poll() is None


def test_nothing_hangs_on_a_pipe(bare: Place, prepared: Path) -> None:
    (prepared / "state.json").unlink()
    os.mkfifo(prepared / "state.json")
    result = bare.nvshare("down")
    assert (result.returncode, "state.json is not used: it is a pipe; remove it" in result.stderr) == (
        5,
        True,
    )
    (prepared / "state.json").unlink()
    os.mkfifo(bare.private_dir / "node.failed")
    result = bare.nvshare("down")
    assert (result.returncode, "node.failed is not used: it is a pipe" in result.stderr) == (5, True)


def test_a_failure_is_printed_as_text(bare: Place, prepared: Path) -> None:
    """It may quote what a stranger sent."""
    (prepared / "state.json").write_bytes(msgspec.json.encode(NodeState(2**22 + 1, 1, "/x")))
    (bare.private_dir / "node.failed").write_bytes(b"said \x1b]0;owned\x07 \xff\nand \xc2\x9b2J\n")
    result = bare.nvshare("down")
    assert result.returncode == 3
    assert "failed: said \\x1b]0;owned\\x07 \N{REPLACEMENT CHARACTER}\\nand \\x9b2J\n" in result.stderr
