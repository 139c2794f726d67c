"""Change the code in small ways, one at a time, and see whether the tests nearest to it notice.

1. A mutant is one change to one expression: a comparison inverted, a sign flipped, a condition negated. Seed
   and count decide which; while the code is the same, the same two numbers give the same mutants.
2. Its tests are ranked: the test file of the same name, then those that mention the changed function or
   class most often, then the rest of the directories that mirror the package. The first failure ends the run.
3. A failure counts only if the same test passes on the unchanged code. A run that exceeds its time counts
   as found: the change made something hang.
4. Each job works on a copy of the checkout, so nothing here is ever left changed.

    python tools/mutants.py --count 200 --seed 1
    python tools/mutants.py --count 10 --only src/nvshare/core/account.py
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
WORK: Final = ROOT / "build" / "mutants"
TESTS: Final = {
    "core": ("core", "sim"),
    "node": ("node", "hostile"),
    "exporters": ("exporters", "deploy"),
    "pods": ("pods", "node", "local"),
    "client": ("client", "node"),
}
"""Package -> directories of tests that know it."""
NEAREST: Final = 4  # files that are run first, by themselves
NEAREST_SEC: Final = 240
ALL_SEC: Final = 900
_INVERTED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_FLIPPED: Final[dict[type[ast.operator], type[ast.operator]]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::\S+)?)", re.MULTILINE)


class Mutant(NamedTuple):
    file: str
    line: int
    scope: str  # the functions and classes around it
    before: str
    after: str
    start: int  # of the expression, in bytes of the file
    end: int
    is_statement: bool

    def applied_to(self, text: str) -> str:
        raw = text.encode()
        after = self.after if self.is_statement else f"({self.after})"
        return (raw[: self.start] + after.encode() + raw[self.end :]).decode()

    def describe(self) -> str:
        return f"{self.file}:{self.line} {self.scope}: `{self.before}` -> `{self.after}`"


class Verdict(NamedTuple):
    mutant: Mutant
    found: bool
    by: str  # the test, or why it counts
    seconds: float


def changed(node: ast.AST) -> Iterator[ast.AST]:
    """What the node may become."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield ast.Compare(node.left, [_INVERTED[type(node.ops[0])]()], node.comparators)
    elif isinstance(node, ast.BinOp) and type(node.op) in _FLIPPED and not _is_text(node):
        yield ast.BinOp(node.left, _FLIPPED[type(node.op)](), node.right)
    elif isinstance(node, ast.AugAssign) and type(node.op) in _FLIPPED and not _is_text(node):
        yield ast.AugAssign(node.target, _FLIPPED[type(node.op)](), node.value)
    elif isinstance(node, ast.BoolOp):
        yield ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.UnaryOp) and (isinstance(node.op, ast.Not) or _is_negated_name(node)):
        yield node.operand


def _is_negated_name(node: ast.UnaryOp) -> bool:
    return isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Name | ast.Attribute)


def _is_text(node: ast.AST) -> bool:
    """Text and lists are joined by +, too; minus would not even run."""
    kinds = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple, ast.Dict, ast.Set)
    return any(
        isinstance(inner, kinds) or (isinstance(inner, ast.Constant) and isinstance(inner.value, str | bytes))
        for inner in ast.walk(node)
    )


def _negated_tests(node: ast.AST) -> Iterator[ast.expr]:
    """Conditions that are no comparison: a plain name or call."""
    if isinstance(node, ast.If | ast.IfExp | ast.While) and isinstance(
        node.test, ast.Name | ast.Attribute | ast.Call
    ):
        yield node.test


def mutants_of(path: Path, file: str) -> Iterator[Mutant]:
    text = path.read_text(encoding="utf-8")
    line_starts = [0]
    for line in text.encode().splitlines(keepends=True):
        line_starts.append(line_starts[-1] + len(line))
    for before, after, scope in _changes_in(ast.parse(text), ()):
        assert before.end_lineno is not None
        assert before.end_col_offset is not None
        yield Mutant(
            file,
            before.lineno,
            ".".join(scope) or "<module>",
            ast.unparse(before),
            ast.unparse(ast.fix_missing_locations(after)),
            line_starts[before.lineno - 1] + before.col_offset,
            line_starts[before.end_lineno - 1] + before.end_col_offset,
            isinstance(before, ast.stmt),
        )


def _changes_in(
    node: ast.AST, scope: tuple[str, ...]
) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST, tuple[str, ...]]]:
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*scope, child.name)
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.expr | ast.stmt):
            for after in changed(child):
                yield child, after, inner
        for test in _negated_tests(child):
            yield test, ast.UnaryOp(ast.Not(), test), inner
        yield from _changes_in(child, inner)


def choose(count: int, seed: int, only: str) -> list[Mutant]:
    """Spread over the packages by how many changes each permits."""
    found: list[Mutant] = []
    for package in TESTS:
        for path in sorted((ROOT / "src/nvshare" / package).rglob("*.py")):
            file = str(path.relative_to(ROOT))
            if not only or file.startswith(only):
                found += mutants_of(path, file)
    random.Random(seed).shuffle(found)
    return found[:count]


def package_of(file: str) -> str:
    return Path(file).parts[2]


def ranked_tests(mutant: Mutant, tree: Path) -> list[str]:
    """Rule 2."""
    directories = [tree / "tests" / name for name in TESTS[package_of(mutant.file)]]
    files = [path for directory in directories for path in sorted(directory.glob("test_*.py"))]
    module = Path(mutant.file).stem
    names = [
        name for name in (*mutant.scope.split("."), module) if not name.startswith("_") and len(name) > 3
    ]

    def rank(path: Path) -> tuple[int, int, int]:
        text = path.read_text(encoding="utf-8")
        mentions = sum(len(re.findall(rf"\b{re.escape(name)}\b", text)) for name in names)
        return (path.stem != f"test_{module}", directories.index(path.parent), -mentions)

    nearest = sorted(files, key=lambda path: (rank(path)[0], rank(path)[2], rank(path)[1]))
    return [str(path.relative_to(tree)) for path in nearest]


def run_tests(tree: Path, tests: list[str], limit_sec: float) -> str:
    """The first test that failed; empty if none did."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-m",
        "not verify",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    with subprocess.Popen(
        command,
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        try:
            output, _ = running.communicate(timeout=limit_sec)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            return "time ran out"
    if running.returncode == 0:
        return ""
    failed = _FAILED.search(output)
    return failed[1] if failed else f"pytest ended with {running.returncode}"


def judge(mutant: Mutant, tree: Path) -> Verdict:
    target = tree / mutant.file
    original = target.read_text(encoding="utf-8")
    began = time.monotonic()
    tests = ranked_tests(mutant, tree)
    found = ""
    for chosen, limit_sec in ((tests[:NEAREST], NEAREST_SEC), (tests[NEAREST:], ALL_SEC)):
        target.write_text(mutant.applied_to(original), encoding="utf-8")
        try:
            found = run_tests(tree, chosen, limit_sec) if chosen else ""
        finally:
            target.write_text(original, encoding="utf-8")
        if found and (".py" not in found or not run_tests(tree, [found.split("[")[0]], limit_sec)):
            break
        found = ""
    return Verdict(mutant, bool(found), found, time.monotonic() - began)


def copy_of_checkout(number: int) -> Path:
    tree = WORK / str(number)
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tree / name)
    (tree / ".venv").symlink_to(ROOT / ".venv")
    (tree / "build").mkdir()
    for built in (ROOT / "build").iterdir():
        if built != WORK:
            (tree / "build" / built.name).symlink_to(built)
    return tree


def judge_all(mutants: list[Mutant], jobs: int) -> Iterator[Verdict]:
    trees: Queue[Path] = Queue()
    for number in range(jobs):
        trees.put(copy_of_checkout(number))

    def one(mutant: Mutant) -> Verdict:
        tree = trees.get()
        try:
            return judge(mutant, tree)
        finally:
            trees.put(tree)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, mutants)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--only", default="", help="mutants of files whose path begins so")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument("--skip", type=int, default=0, help="leave out the first ones, to go on with a run")
    options = parser.parse_args(arguments)
    mutants = choose(options.count, options.seed, options.only)[options.skip :]
    if options.list:
        for mutant in mutants:
            print(mutant.describe())
        return 0
    verdicts = []
    WORK.mkdir(parents=True, exist_ok=True)
    for number, verdict in enumerate(judge_all(mutants, options.jobs), options.skip + 1):
        verdicts.append(verdict)
        word = f"found by {verdict.by}" if verdict.found else "SURVIVED"
        print(f"{number:4} {verdict.seconds:6.1f} s  {verdict.mutant.describe()}  {word}", flush=True)
    survivors = [verdict.mutant for verdict in verdicts if not verdict.found]
    (WORK / "survivors.json").write_text(json.dumps([one._asdict() for one in survivors], indent=1))
    print(f"{len(verdicts) - len(survivors)} of {len(verdicts)} mutants found")
    for mutant in survivors:
        print(f"survived: {mutant.describe()}")
    return 0 if len(survivors) <= len(verdicts) // 10 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
