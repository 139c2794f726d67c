"""Every command of the READMEs and pages works when it is pasted, in order, and shows what the text says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, MarkError, Reader, blocks_of, lacking, pages, read

# Once in either language of the README: the commands are the same, as a test of the repository checks.
QUICK = [block for page in pages() if page != "README.zh-CN.md" for block in read(page) if block.quick]


def check(blocks: list[Block], shown: list[str]) -> None:
    runnable = [block for block in blocks if not block.needs]
    for block, output in zip(runnable, shown, strict=True):
        assert lacking(block, output) == [], f"{block} shows:\n{output}"


@pytest.mark.parametrize("block", QUICK, ids=str)
def test_a_quick_block_works_in_the_checkout(block: Block, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    here = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    check([block], Reader(tmp_path / "home", tmp_path, here).paste([block]))


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a newcomer has: what is committed, and nothing that was built."""
    directory = tmp_path_factory.mktemp("newcomer") / "nvshare"
    command = ["git", "-c", "safe.directory=*", "clone", "--quiet", str(ROOT), str(directory)]
    subprocess.run(command, check=True)
    return directory


def path_without_us() -> str:
    ours = {str(Path(sys.executable).parent), str(ROOT / ".venv" / "bin")}
    return ":".join(part for part in os.environ["PATH"].split(":") if part not in ours)


def runnable_pages() -> list[str]:
    return [page for page in pages() if any(not block.needs for block in read(page))]


@pytest.mark.verify
@pytest.mark.parametrize("page", runnable_pages())
def test_a_page_works_from_top_to_bottom(page: str, clone: Path, tmp_path: Path) -> None:
    """The READMEs install what the other pages use."""
    first = "" if page.startswith("README") else ". venv/bin/activate"
    blocks = blocks_of(page, (clone / page).read_text(encoding="utf-8"))
    check(blocks, Reader(tmp_path / "home", clone, path_without_us()).paste(blocks, first))


def test_both_languages_are_marked_alike() -> None:
    english, chinese = (read(page) for page in ("README.md", "README.zh-CN.md"))
    assert [block._replace(page="", line=0, commands="") for block in english] == [
        block._replace(page="", line=0, commands="") for block in chinese
    ]


def test_the_readme_has_a_sample() -> None:
    assert any(block.page == "README.md" for block in QUICK)


def test_a_block_that_fails_is_named(tmp_path: Path) -> None:
    blocks = blocks_of("page.md", "```sh\ntrue\n```\n\n```sh\necho so && no-such-command | cat\ntrue\n```\n")
    with pytest.raises(AssertionError, match=r"page\.md:5 failed with 127:\n(.|\n)*no-such-command"):
        Reader(tmp_path / "home", tmp_path, os.environ["PATH"]).paste(blocks)


def test_what_is_not_shown_is_named() -> None:
    [block] = blocks_of("page.md", "<!-- shows: one -->\n<!-- shows: two -->\n```sh\ntrue\n```\n")
    assert lacking(block, "one two") == []
    assert lacking(block, "two one") == ["two"]


def test_a_mark_that_nobody_understands_is_refused() -> None:
    with pytest.raises(MarkError, match="needs: a gpu"):
        blocks_of("page.md", "<!-- needs: a gpu -->\n```sh\ntrue\n```\n")


def test_what_needs_a_gpu_is_not_run(tmp_path: Path) -> None:
    blocks = blocks_of("page.md", "<!-- needs: a GPU -->\n```sh\nfalse\n```\n")
    assert Reader(tmp_path / "home", tmp_path, os.environ["PATH"]).paste(blocks) == []
