"""Commands that are started in a directory to which others can write: nothing of it is imported."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from nvshare.sim.kube_api.handle import KubeApiProcess
from tests.local.harness import Place
from tests.node.harness import PATIENCE_SEC
from tests.test_repository import ROOT

INSTALLED = str(Path(sys.executable).with_name("nvshare"))
PLANTED = ("click", "ctypes", "json", "msgspec", "nvshare", "sitecustomize", "uvloop")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Any module of it that is imported leaves a trace."""
    directory = tmp_path / "foreign"
    directory.mkdir()
    for name in PLANTED:
        trace = f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r} + chr(10))\n"
        (directory / f"{name}.py").write_text(f"{trace}raise ImportError('planted')\n")
    return directory


def imported(foreign: Path) -> str:
    trace = foreign.with_name("imported")
    return trace.read_text() if trace.exists() else ""


def test_a_node_and_its_daemon(bare: Place, foreign: Path) -> None:
    up = bare.start("env", "-C", str(foreign), INSTALLED, "up", "--sim", "t4:1", "--detach")
    _, error = up.communicate(timeout=PATIENCE_SEC)
    assert (up.returncode, error, imported(foreign)) == (0, "", "")
    down = bare.start("env", "-C", str(foreign), INSTALLED, "down")
    assert down.wait(PATIENCE_SEC) == 0
    assert imported(foreign) == ""


def test_nothing_else_of_ours_starts_an_interpreter() -> None:
    sources = (ROOT / "src").rglob("*.py")
    starting = {path.name for path in sources if re.search(r"\[\s*sys\.executable", path.read_text())}
    assert starting == {"own_modules.py"}


def test_the_double_of_an_api_server(foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(foreign)
    double = KubeApiProcess(tmp_path / "api")
    try:
        assert double.port
    finally:
        double.close()
    assert imported(foreign) == ""
