"""Mutated regions and regions that are written while they are read: a sample of `make verify-hami`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nvshare.hami.region import Refused, read_region
from nvshare.pods.region_files import RegionFile
from tests.hami.mutations import as_files, in_memory
from tests.hami.samples import region_bytes
from tests.hami.writers import SAMPLES, WRITERS, read_while_written

SAMPLE = "v1.2-single-process-2gpu"


def test_mutated_regions_have_no_value_that_is_not_theirs() -> None:
    found = in_memory(600, seed=7)
    assert found["accepted"] > 100
    assert found["refused"] > 30


def test_files_that_change_while_they_are_read(tmp_path: Path) -> None:
    found = as_files(60, 7, tmp_path)
    assert found["read"] > 0
    assert found.total() == 60


@pytest.mark.parametrize("name", SAMPLES)
def test_no_value_is_torn(name: str, tmp_path: Path) -> None:
    found = read_while_written(name, 300, tmp_path)
    assert found["torn"] == 0
    assert found["whole"] > 0
    assert found["different values"] > WRITERS, "they did write meanwhile"


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.cache"

    def reason() -> str:
        with pytest.raises(Refused) as refused, RegionFile(path) as file:
            read_region(file.read, file.size_bytes)
        return refused.value.reason

    assert reason() == "missing"
    path.mkdir()
    assert reason() == "no_file"
    path.rmdir()
    os.mkfifo(path)
    assert reason() == "no_file", "and it does not wait for a writer"
    path.unlink()
    path.symlink_to("/etc/hostname")
    assert reason() == "unreadable"
    path.unlink()
    path.touch()
    assert reason() == "empty"


def test_a_file_that_is_replaced_or_resized_is_another_one(tmp_path: Path) -> None:
    path, other = tmp_path / "x.cache", tmp_path / "y"
    path.write_bytes(region_bytes(SAMPLE))
    with RegionFile(path) as file:
        assert file.is_at(path)
        other.write_bytes(region_bytes(SAMPLE))
        other.replace(path)
        assert not file.is_at(path)
    with RegionFile(path) as file:
        os.truncate(path, 12)
        assert not file.is_at(path)
        path.unlink()
        assert not file.is_at(path)


def test_reading_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.cache"
    path.write_bytes(region_bytes(SAMPLE))
    before = path.stat()
    with RegionFile(path) as file:
        read_region(file.read, file.size_bytes)
    after = path.stat()
    assert path.read_bytes() == region_bytes(SAMPLE)
    assert (before.st_mtime_ns, before.st_ino) == (after.st_mtime_ns, after.st_ino)
