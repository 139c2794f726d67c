"""Where the preloaded library is found, and where it could not be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from nvshare.runtime import libraries


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package under some other path."""
    found = tmp_path / "my packages" / "nvshare"
    found.mkdir(parents=True)
    monkeypatch.setattr(libraries, "_PACKAGE", found)
    return found


def test_it_was_not_built(package: Path) -> None:
    with pytest.raises(libraries.InterposerMissingError, match="make interposer"):
        libraries.interposer_library()
    assert not (package / "lib").exists()


def test_a_path_that_the_loader_would_take_apart(package: Path) -> None:
    (package / "lib").mkdir()
    (package / "lib" / libraries.INTERPOSER).touch()
    with pytest.raises(libraries.InterposerMissingError, match="takes blanks and colons for separators"):
        libraries.interposer_library()


def test_the_repositorys_own_is_found() -> None:
    assert libraries.interposer_library().name == "libnvshare.so"
