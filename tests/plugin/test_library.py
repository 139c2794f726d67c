"""Files reach the node whole, and programs keep what they have mapped."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from nvshare.plugin.library import PlaceError, is_in_place, place
from tests.plugin.harness import running_node, wait_until


def test_a_file_is_placed_once(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"library")
    placed, new = place(source, target)
    assert (new, target.read_bytes(), target.stat().st_mode & 0o777) == (True, b"library", 0o755)
    again, new = place(source, target)
    assert (again, new) == (placed, False)
    assert is_in_place(placed)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["source", "target"]


def test_who_has_mapped_the_older_one_keeps_it(tmp_path: Path) -> None:
    target = tmp_path / "target"
    place(b"older" * 1000, target)
    with target.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        _, new = place(b"newer", target)
        assert new
        assert mapped[:5] == b"older"
        assert os.fstat(file.fileno()).st_nlink == 0, "and it goes when nobody has it any more"
    assert target.read_bytes() == b"newer"


def test_a_directory_in_its_place_is_removed_if_it_is_empty(tmp_path: Path) -> None:
    target = tmp_path / "libnvshare.so"
    target.mkdir()
    place(b"library", target)
    assert target.read_bytes() == b"library"
    full = tmp_path / "full"
    (full / "inside").mkdir(parents=True)
    with pytest.raises(PlaceError, match=f"{full} cannot be written: .*not empty"):
        place(b"library", full)
    assert (full / "inside").is_dir()


def test_what_a_crash_has_left_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".target.new").write_bytes(b"half a libr")
    place(b"library", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"library"
    assert not (tmp_path / ".target.new").exists()


def test_a_file_with_the_same_name_and_another_content_is_replaced(tmp_path: Path) -> None:
    placed, _ = place(b"library", tmp_path / "target")
    (tmp_path / "target").unlink()
    assert not is_in_place(placed)
    (tmp_path / "target").write_bytes(b"LIBRARY")
    _, new = place(b"library", tmp_path / "target")
    assert new


def test_the_plugin_brings_back_what_is_deleted_or_replaced(tmp_path: Path) -> None:
    """And a reader of the directory finds the socket's directory, the library, and nothing else."""
    with running_node(tmp_path) as node:
        library = node.plugin.sock_dir / "libnvshare.so"
        content = library.read_bytes()
        library.unlink()
        wait_until(library.is_file, "the library is back")
        library.unlink()
        library.mkdir()  # as a container runtime does
        wait_until(library.is_file, "the library is back in the place of a directory")
        assert library.read_bytes() == content
        assert [path.name for path in node.plugin.sock_dir.iterdir()] == ["libnvshare.so"]


def test_the_loaders_file_names_the_library(tmp_path: Path) -> None:
    with running_node(tmp_path, preload="file") as node:
        text = (node.plugin.plugin_dir / "ld.so.preload").read_text()
        assert text == "/var/run/nvshare/libnvshare.so\n"


def test_pods_of_any_user_reach_simulated_cards(tmp_path: Path) -> None:
    """The files are everybody's, and the directory is not."""
    with running_node(tmp_path) as node:
        state = tmp_path / "sim"

        def modes() -> set[int]:
            return {path.stat().st_mode & 0o777 for path in state.iterdir()}

        wait_until(lambda: modes() == {0o666}, "the files are everybody's")
        assert state.stat().st_mode & 0o022 == 0
        assert node.plugin.terminate() == 0
