"""Which core runs is told the same everywhere, from one place."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from nvshare import __version__, build
from nvshare.cli import main
from nvshare.core import scheduler


def test_it_is_the_core_that_is_loaded() -> None:
    assert (build.core_kind() == "plain") == str(scheduler.__file__).endswith(".py")


def test_the_version_tells_it() -> None:
    told = CliRunner().invoke(main, ["--version"]).output
    assert told == f"nvshare {__version__}, {build.core_kind()} core\n"


def test_the_version_tells_why_it_is_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = tmp_path / "plain_reason.txt"
    reason.write_text("installed without Python.h\n")
    monkeypatch.setattr(build, "_PLAIN_REASON", reason)
    monkeypatch.setattr(build, "core_kind", lambda: "plain")
    told = CliRunner().invoke(main, ["--version"]).output
    assert told == f"nvshare {__version__}, plain core (installed without Python.h)\n"
