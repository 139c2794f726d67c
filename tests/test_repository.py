"""What a reviewer would look for in the repository itself."""

from __future__ import annotations

import re
import subprocess
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from nvshare.core.settings import LIBRARY_SETTINGS, SETTINGS
from nvshare.exporters.cluster.settings import CLUSTER_SETTINGS
from nvshare.exporters.monitor.settings import MONITOR_SETTINGS
from nvshare.exporters.vgpu.settings import VGPU_SETTINGS
from nvshare.node.config import DAEMON_SETTINGS
from nvshare.plugin.config import PLUGIN_SETTINGS
from tools.generate_docs import stale_pages

ROOT: Final = Path(__file__).resolve().parent.parent

OTHERS: Final = (*PLUGIN_SETTINGS, *MONITOR_SETTINGS, *CLUSTER_SETTINGS, *VGPU_SETTINGS)

# Named in the documents before the part that reads them exists, or read by the tests alone.
PLANNED_VARIABLES: Final[dict[str, str]] = {}
TEST_VARIABLES: Final = {"NVSHARE_REQUIRE_ALL", "NVSHARE_COMPILE", "NVSHARE_TEST_KUBECONFIG"}
SIMULATOR_VARIABLES: Final = {"NVSHARE_SIM", "NVSHARE_SIM_DIR", "NVSHARE_SIM_LIB"}

# Any other host in the tree is either a slip, like the address of somebody's package mirror, or belongs here.
NOBODYS: Final = (".example", ".example.com")  # kept free for documents
PUBLIC_HOSTS: Final = {"json-schema.org", "keepachangelog.com", "semver.org", "www.apache.org", "www.w3.org"}

# Split so that this file does not find itself.
FORBIDDEN: Final = {
    "a path of somebody's machine": re.compile(r"/(?:wo" + r"rk|ho" + r"me/\w+|tmp/bri" + r"efs)/"),
    "a number that only a tracker explains": re.compile(r"\b[Ii]ss" + r"ue #?\d"),
    "unfinished work": re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"),
}


@cache
def tracked_files() -> tuple[Path, ...]:
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True
    )
    paths = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return tuple(path for path in paths if path.is_file())


@cache
def texts() -> dict[str, str]:
    """Every tracked file that is text, by its name in the repository."""
    found: dict[str, str] = {}
    for path in tracked_files():
        raw = path.read_bytes()
        if b"\0" not in raw:
            found[path.relative_to(ROOT).as_posix()] = raw.decode()
    return found


def pages() -> dict[str, str]:
    return {name: text for name, text in texts().items() if name.endswith(".md")}


def test_the_repository_is_seen() -> None:
    assert {
        "README.md",
        "README.zh-CN.md",
        "Makefile",
        "pyproject.toml",
        "docs/protocol.md",
    } <= texts().keys()


def test_generated_pages_are_fresh() -> None:
    assert stale_pages() == []


def test_every_variable_in_the_documents_exists_or_is_planned() -> None:
    known = {row.variable for row in (*SETTINGS, *DAEMON_SETTINGS, *LIBRARY_SETTINGS, *OTHERS)}
    named = {name for text in pages().values() for name in re.findall(r"\bNVSHARE_[A-Z0-9_]*[A-Z0-9]", text)}
    assert known <= named, "docs/settings.md names every setting"
    assert named - known - PLANNED_VARIABLES.keys() - TEST_VARIABLES - SIMULATOR_VARIABLES == set()
    assert known & PLANNED_VARIABLES.keys() == set(), "no longer planned"


@pytest.mark.parametrize("what", FORBIDDEN)
def test_nothing_in_the_tree_is(what: str) -> None:
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if FORBIDDEN[what].search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("a path of somebody's machine", "see /ho" + "me/ann/notes"),
        ("a path of somebody's machine", "cd /wo" + "rk/tree"),
        ("a number that only a tracker explains", "fixes iss" + "ue 12"),
        ("unfinished work", "# TO" + "DO later"),
    ],
)
def test_the_search_finds(what: str, line: str) -> None:
    assert FORBIDDEN[what].search(line)


def test_only_public_hosts_are_named() -> None:
    found = {
        (name, host)
        for name, text in texts().items()
        if name != "LICENSE"
        for host in re.findall(r"https?://([A-Za-z0-9.-]+\.[A-Za-z]{2,})", text)
        if host not in PUBLIC_HOSTS and not host.endswith(NOBODYS)
    }
    assert found == set()


def test_links_between_pages_lead_somewhere() -> None:
    broken = [
        f"{name}: {target}"
        for name, text in pages().items()
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text)
        if not (ROOT / name).parent.joinpath(target).exists()
    ]
    assert broken == []


def test_every_make_target_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", texts()["Makefile"], re.MULTILINE))
    named = {
        target
        for text in pages().values()
        for target in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.MULTILINE)
    }
    assert {"demo", "test"} <= named
    assert named <= targets


def _outline(text: str) -> dict[str, object]:
    """What two languages of one page must have in common."""
    fences = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {
        "headings": [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)],
        "commands": [line.split("#")[0].strip() for fence in fences for line in fence.splitlines()],
        "links": {link for link in re.findall(r"\]\(([^)]+)\)", prose) if not link.startswith("README")},
        "table rows": [line.count("|") for line in prose.splitlines() if line.startswith("|")],
        "list items": len(re.findall(r"^- ", prose, re.MULTILINE)),
        "literals": sorted(re.findall(r"`([^`]+)`", prose)),
    }


def test_both_languages_say_the_same() -> None:
    assert _outline(texts()["README.zh-CN.md"]) == _outline(texts()["README.md"])
    assert len(re.findall(r"[\u4e00-\u9fff]", texts()["README.zh-CN.md"])) > 300, "it is in Chinese"


def test_chinese_lines_end_where_sentences_do() -> None:
    """A line break within a sentence is shown as a blank between two characters."""
    prose = re.sub(r"^```.*?^```", "", texts()["README.zh-CN.md"], flags=re.MULTILINE | re.DOTALL)
    lines = prose.splitlines()
    followed = [
        line for line, following in pairwise(lines) if following and not following.startswith(("- ", "|"))
    ]
    assert [line for line in followed if line and not line.endswith(("。", "-->"))] == []


def test_chinese_links_to_english_pages_say_so() -> None:
    text, _, rest = texts()["README.zh-CN.md"].partition("以下页面都是英文")
    assert "](docs/architecture.md)" in rest
    links = re.findall(r"\]\(((?:docs|native)/[^)]+\.md)\)(.{4})", text)
    assert [link for link, after in links if after != "（英文）"] == []
    assert links


def test_building_needs_the_pinned_versions() -> None:
    needed = tomllib.loads(texts()["pyproject.toml"])["build-system"]["requires"]
    assert set(needed) <= set(texts()["constraints.txt"].splitlines())
    assert {"setuptools", "mypy", "grpcio-tools"} == {requirement.split("==")[0] for requirement in needed}


def _dependencies() -> set[str]:
    project = tomllib.loads(texts()["pyproject.toml"])["project"]
    extras = project["optional-dependencies"].values()
    requirements = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return {re.split(r"[\[<>=~! ]", requirement)[0] for requirement in requirements}


def test_every_dependency_is_pinned_and_explained() -> None:
    pinned = {line.split("==")[0] for line in texts()["constraints.txt"].splitlines() if "==" in line}
    explained = texts()["docs/dependencies.md"].split("## Planned")[0]
    assert _dependencies() <= pinned
    assert [name for name in sorted(_dependencies()) if not re.search(rf"\b{name}\b", explained)] == []


def test_the_changelog_has_a_place_for_the_next_change() -> None:
    assert re.findall(r"^## \[([^\]]+)\]", texts()["CHANGELOG.md"], re.MULTILINE)[0] == "Unreleased"


def test_tests_that_the_documents_name_exist() -> None:
    """A promise that names its check is worth as much as the check."""
    for page, text in pages().items():
        for name in re.findall(r"\btests/[\w/]+\.py\b", text):
            assert (ROOT / name).is_file(), f"{page} names {name}"
