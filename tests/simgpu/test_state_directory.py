"""The state directory: nothing that another user put there, or in its place, is used or changed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nvshare.cli import main
from nvshare.sim.gpu import SimulatedNode, SimulatorError

SOMEBODY = 62_101
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody else")


def command(*arguments: str, **environment: str | None) -> Result:
    unset: dict[str, str | None] = {"NVSHARE_SIM": None, "NVSHARE_SIM_DIR": None}
    return CliRunner(env=unset | environment).invoke(main, ["sim", *arguments])


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    for word in words:
        assert word in result.output


@only_root
def test_root_uses_no_directory_of_another_user(tmp_path: Path) -> None:
    directory, precious = tmp_path / "theirs", tmp_path / "precious"
    precious.write_text("precious")
    directory.mkdir()
    for name in ("state.new", "state", "lock"):
        (directory / name).symlink_to(precious)
    (directory / "slots").symlink_to(tmp_path / "new")
    os.chown(directory, SOMEBODY, SOMEBODY)
    for arguments in (("status",), ("reset",), ("--cards", "t4:1", "fault", "lost", "0")):
        result = command("--dir", str(directory), *arguments)
        refused(result, str(directory), f"belongs to user {SOMEBODY}", "as that user", "--dir")
    assert precious.read_text() == "precious"
    assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in directory.iterdir()) == ["lock", "slots", "state", "state.new"]


@only_root
@pytest.mark.parametrize("runtime", ["foreign", "relative"])
def test_root_ignores_a_runtime_directory(tmp_path: Path, runtime: str) -> None:
    """Root's environment may come from another user's session."""
    (tmp_path / "foreign").mkdir()
    os.chown(tmp_path / "foreign", SOMEBODY, SOMEBODY)
    elsewhere = str(tmp_path / "foreign") if runtime == "foreign" else "foreign"
    result = command("status", XDG_RUNTIME_DIR=elsewhere, NVSHARE_PRIVATE_DIR=str(tmp_path / "none"))
    assert "nvshare-sim-0" in result.output
    assert "foreign" not in result.output
    assert list((tmp_path / "foreign").iterdir()) == []


def test_links_lead_nowhere(tmp_path: Path) -> None:
    there, link = tmp_path / "there", tmp_path / "link"
    there.mkdir(mode=0o700)
    link.symlink_to(there)
    for name in (str(link), f"{link}/"):
        refused(
            command("--dir", name, "--cards", "t4:1", "fault", "lost", "0"), "is a symbolic link", "--dir"
        )
    assert list(there.iterdir()) == []


@pytest.mark.parametrize("name", ["state", "slots", "lock", "seed"])
@pytest.mark.parametrize("kind", ["link", "pipe", "second name", "foreign"])
def test_files_that_are_not_used(tmp_path: Path, name: str, kind: str) -> None:
    directory, precious = tmp_path / "node", tmp_path / "precious"
    directory.mkdir(mode=0o700)
    precious.write_text("precious")
    if kind == "link":
        (directory / name).symlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(directory / name)
    elif kind == "second name":
        (directory / name).hardlink_to(precious)
    elif os.geteuid() == 0:
        (directory / name).touch()
        os.chown(directory / name, SOMEBODY, SOMEBODY)
    else:
        pytest.skip("only root can give files to somebody else")
    with pytest.raises(SimulatorError, match=f"{name} is not used: it .*; remove it"):
        SimulatedNode(directory, "t4:1")
    assert precious.read_text() == "precious"
    assert not (directory / "state.new").exists(), "nothing is left behind"


def test_what_has_the_name_of_a_new_state_goes(tmp_path: Path) -> None:
    directory, precious = tmp_path / "node", tmp_path / "precious"
    directory.mkdir(mode=0o700)
    precious.write_text("precious")
    (directory / "state.new").symlink_to(precious)
    SimulatedNode(directory, "t4:1").close()
    assert precious.read_text() == "precious"
    assert not (directory / "state").is_symlink()


def test_a_directory_in_which_others_can_replace_files(tmp_path: Path) -> None:
    directory = tmp_path / "open"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(SimulatorError, match=f"mode 0777, .*chmod go-w {directory}"):
        SimulatedNode(directory, "t4:1")
    directory.chmod(0o1777)
    SimulatedNode(directory, "t4:1").close()


@only_root
def test_a_program_refuses_it_too(sim: Any, tmp_path: Path) -> None:
    """The CUDA library itself, which programs load."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, SOMEBODY, SOMEBODY)
    program = [sys.executable, "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"]
    environment = sim.environment(NVSHARE_SIM_DIR=str(theirs))
    result = subprocess.run(program, env=environment, capture_output=True, text=True)
    assert (result.stdout, f"{theirs} belongs to user" in result.stderr) == ("100\n", True)
    assert list(theirs.iterdir()) == []


def test_somebody_who_keeps_the_lock_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    SimulatedNode(tmp_path / "node", "t4:1").close()
    with (tmp_path / "node" / "lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused(
            command("--dir", str(tmp_path / "node"), "status"), "has locked the state directory", "lslocks"
        )
    assert command("--dir", str(tmp_path / "node"), "status").exit_code == 0
