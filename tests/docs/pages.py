"""The commands of a page, as a reader copies them: each ```sh block, and what comments before it say.

<!-- needs: a GPU -->      it cannot run here; accepted are the words of NEEDS
<!-- quick -->             `make test` runs it too: it stands alone and takes seconds
<!-- shows: words -->      stands in the output of the block; several in this order

A page's blocks run one after the other in one shell, which ends at the first command that fails.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
NEEDS: Final = ("a GPU", "a cluster", "a container engine", "twelve minutes")
PATIENCE_SEC: Final = 1800
METRICS_PORT: Final = "9402"
# The pages wait for a few seconds, which is plenty for a reader. On a machine busy with other tests it
# may not be, so here it goes on until the daemon answers and knows as many programs as were started.
_PATIENT: Final = """
sleep() {
  command sleep "$1"
  for _ in {1..600}; do
    local programs=$(jobs -r | grep -c 'nvshare run' || true)
    local known=$(nvshare ctl clients 2>/dev/null | grep -c ml/ || true)
    nvshare ctl status >/dev/null 2>&1 && [ "$known" -ge "$programs" ] && return
    command sleep 0.2
  done
}
"""
_COMMENT: Final = re.compile(r"<!-- (.*) -->")
_END: Final = "\x1e"


class MarkError(Exception):
    """A comment before a block that nobody understands, so what it was meant to say would be lost."""


class Block(NamedTuple):
    page: str
    line: int
    commands: str
    needs: str = ""
    quick: bool = False
    shows: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """By their names in the repository; the READMEs first, as one reads them."""
    return [
        "README.md",
        "README.zh-CN.md",
        *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
    ]


def blocks_of(page: str, text: str) -> list[Block]:
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines):
        if line == "```sh":
            end = lines.index("```", number)
            commands = "\n".join(lines[number + 1 : end])
            marks = _marks_before(lines, number)
            found.append(_marked(Block(page, number + 1, commands), marks))
    return found


def _marks_before(lines: list[str], fence: int) -> list[str]:
    marks: list[str] = []
    while fence and (comment := _COMMENT.fullmatch(lines[fence - 1])):
        marks.insert(0, comment[1])
        fence -= 1
    return marks


def _marked(block: Block, marks: list[str]) -> Block:
    for mark in marks:
        word, _, rest = mark.partition(": ")
        if word == "needs" and rest in NEEDS:
            block = block._replace(needs=rest)
        elif mark == "quick":
            block = block._replace(quick=True)
        elif word == "shows" and rest:
            block = block._replace(shows=(*block.shows, rest))
        else:
            raise MarkError(
                f"{block}: {mark!r} is not understood; accepted: quick, shows: WORDS, needs: {NEEDS}"
            )
    return block


def read(page: str) -> list[Block]:
    return blocks_of(page, (ROOT / page).read_text(encoding="utf-8"))


def free_port() -> str:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return str(trial.getsockname()[1])


class Reader:
    """Somebody with directories and a port of his own, so that he disturbs no other node of this machine."""

    def __init__(self, home: Path, where: Path, path: str) -> None:
        self._where = where
        self._port = free_port()
        (home / "runtime").mkdir(parents=True, mode=0o700)
        kept = {
            name: text
            for name, text in os.environ.items()
            if not name.startswith(("NVSHARE_", "VIRTUAL_ENV"))
        }
        self.environment: Mapping[str, str] = {
            **kept,
            "PATH": path,
            "XDG_RUNTIME_DIR": str(home / "runtime"),
            "NVSHARE_SOCK_DIR": str(home / "s"),
            "NVSHARE_PRIVATE_DIR": str(home / "p"),
            "NVSHARE_METRICS_ADDR": f"127.0.0.1:{self._port}",
            "COLUMNS": "120",
        }

    def paste(self, blocks: list[Block], first: str = "") -> list[str]:
        """What each block shows. Raises AssertionError that names the one that failed."""
        runnable = [block for block in blocks if not block.needs]
        script = ["set -eo pipefail", _PATIENT, first]
        for block in runnable:
            script += [block.commands.replace(METRICS_PORT, self._port), f"printf '{_END}'"]
        code, output = self._run("\n".join(script))
        shown = output.split(_END)
        assert code == 0, f"{runnable[len(shown) - 1]} failed with {code}:\n{shown[-1][-5000:]}"
        return shown[:-1]

    def _run(self, script: str) -> tuple[int, str]:
        with _ended(self._where, self.environment, script) as process:
            output, _ = process.communicate(timeout=PATIENCE_SEC)
        return process.returncode, output


@contextlib.contextmanager
def _ended(where: Path, environment: Mapping[str, str], script: str) -> Iterator[subprocess.Popen[str]]:
    """A shell of which nothing is left, also where a block fails between `nvshare up` and `nvshare down`."""
    process = subprocess.Popen(
        ["bash", "-c", f"trap 'nvshare down >/dev/null 2>&1 || true' EXIT\n{script}"],
        cwd=where,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def lacking(block: Block, output: str) -> list[str]:
    """What it says it shows and does not, in this order."""
    missing, at = [], 0
    for words in block.shows:
        found = output.find(words, at)
        if found < 0:
            missing.append(words)
        else:
            at = found
    return missing
