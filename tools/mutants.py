"""Change the code in small ways, one at a time, and see whether the nearest tests notice.

1. A mutant is one change to one expression: a comparison inverted, a sign flipped, a condition negated. Seed
   and count decide which; while the code is the same, the same two numbers give the same mutants.
2. The tests run once on the unchanged code, to learn how long each takes and which functions it calls. A
   mutant gets the tests that call the changed function, the quickest first, and then whole files by name: the
   file of the same name, and those that mention the function or class most often. Together they take no
   longer than BUDGET_SEC. The first failure ends the run.
3. Only tests that pass on the unchanged code count, and the test that failed must pass there once more. A run
   that takes several times as long as on the unchanged code counts as found: the change made something hang.
4. Each job works on a copy of the checkout, so nothing here is ever left changed.

    python -m tools.mutants --count 200 --seed 1
    python -m tools.mutants --count 10 --only src/nvshare/core/account.py
"""

from __future__ import annotations

import argparse
import ast
import hashlib
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

from tools import called_functions

ROOT: Final = Path(__file__).resolve().parent.parent
WORK: Final = ROOT / "build" / "mutants"
TESTS: Final = {
    "core": ("core", "sim"),
    "node": ("node", "runtime"),
    "exporters": ("exporters",),
    "pods": ("pods", "node"),
    "client": ("client", "node"),
}
"""Package -> directories of tests that know it."""
BUDGET_SEC: Final = 30.0
HANG_LEAST_SEC: Final = 30.0
HANG_TIMES: Final = 3
LEARN_SEC: Final = 3600.0
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
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::.+?)?)(?: - .*)?$", re.MULTILINE)


class Mutant(NamedTuple):
    file: str
    line: int
    scope: str  # the functions and classes around it
    function: str  # the innermost of the functions, as ``called_functions`` names it
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
    """What the node may be changed to."""
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
    """Text and lists are also joined by +, where minus would not even run."""
    kinds = (ast.JoinedStr, ast.List, ast.ListComp, ast.Tuple, ast.Dict, ast.Set)
    return any(
        isinstance(inner, kinds) or (isinstance(inner, ast.Constant) and isinstance(inner.value, str | bytes))
        for inner in ast.walk(node)
    )


def _negated_tests(node: ast.AST) -> Iterator[ast.expr]:
    """Conditions that are not comparisons: a plain name or call."""
    if isinstance(node, ast.If | ast.IfExp | ast.While) and isinstance(
        node.test, ast.Name | ast.Attribute | ast.Call
    ):
        yield node.test


def mutants_of(path: Path, file: str) -> Iterator[Mutant]:
    text = path.read_text(encoding="utf-8")
    line_starts = [0]
    for line in text.encode().splitlines(keepends=True):
        line_starts.append(line_starts[-1] + len(line))
    module = file.partition("src/nvshare/")[2]
    for before, after, scope, first_line in _changes_in(ast.parse(text), (), 0):
        assert before.end_lineno is not None
        assert before.end_col_offset is not None
        yield Mutant(
            file,
            before.lineno,
            ".".join(scope) or "<module>",
            f"{module}:{first_line}",
            ast.unparse(before),
            ast.unparse(ast.fix_missing_locations(after)),
            line_starts[before.lineno - 1] + before.col_offset,
            line_starts[before.end_lineno - 1] + before.end_col_offset,
            isinstance(before, ast.stmt),
        )


def _changes_in(
    node: ast.AST, scope: tuple[str, ...], first_line: int
) -> Iterator[tuple[ast.expr | ast.stmt, ast.AST, tuple[str, ...], int]]:
    for child in ast.iter_child_nodes(node):
        inner, line = scope, first_line
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = (*scope, child.name)
            if not isinstance(child, ast.ClassDef):
                line = min([child.lineno, *(one.lineno for one in child.decorator_list)])
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.expr | ast.stmt):
            for after in changed(child):
                yield child, after, inner, line
        for test in _negated_tests(child):
            yield test, ast.UnaryOp(ast.Not(), test), inner, line
        yield from _changes_in(child, inner, line)


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


class LearnedTest(NamedTuple):
    name: str  # as pytest names it
    seconds: float
    functions: frozenset[str]

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


def nearest_tests(
    mutant: Mutant, tests: list[LearnedTest], tree: Path, budget_sec: float
) -> tuple[list[str], float]:
    """Rule 2: the tests for a mutant, and how long they take on the unchanged code."""
    callers = sorted((test for test in tests if mutant.function in test.functions), key=lambda t: t.seconds)
    by_file: dict[str, list[LearnedTest]] = {}
    for test in tests:
        by_file.setdefault(test.file, []).append(test)
    others = [test for file in ranked_files(mutant, list(by_file), tree) for test in by_file[file]]
    chosen: dict[str, None] = {}
    total_sec = 0.0
    for test in (*callers, *others):
        if test.name not in chosen and (not chosen or total_sec + test.seconds <= budget_sec):
            chosen[test.name] = None
            total_sec += test.seconds
    return list(chosen), total_sec


def ranked_files(mutant: Mutant, files: list[str], tree: Path) -> list[str]:
    """By name, then by mentions, then in the order of the directories."""
    directories = [f"tests/{name}" for name in TESTS[package_of(mutant.file)]]
    module = Path(mutant.file).stem
    names = [
        name for name in (*mutant.scope.split("."), module) if not name.startswith("_") and len(name) > 3
    ]

    def rank(file: str) -> tuple[bool, int, int, str]:
        text = (tree / file).read_text(encoding="utf-8")
        mentions = sum(len(re.findall(rf"\b{re.escape(name)}\b", text)) for name in names)
        directory = directories.index(str(Path(file).parent))
        return (Path(file).stem != f"test_{module}", -mentions, directory, file)

    return sorted((file for file in files if str(Path(file).parent) in directories), key=rank)


def learn_tests(tree: Path, directories: list[str], jobs: int) -> list[LearnedTest]:
    """Run the tests on the unchanged code (rules 2 and 3)."""
    calls = tree / "build" / "calls"
    calls.mkdir(parents=True)
    present = [f"tests/{name}" for name in directories if (tree / "tests" / name).is_dir()]
    options = ["-p", "tools.called_functions", "-n", str(jobs), "--dist", "worksteal", *present]
    _pytest(tree, options, LEARN_SEC, {called_functions.VARIABLE: str(calls)})
    rows = [json.loads(line) for file in sorted(calls.iterdir()) for line in file.read_text().splitlines()]
    return [LearnedTest(row["test"], row["seconds"], frozenset(row["functions"])) for row in rows]


def run_tests(tree: Path, tests: list[str], limit_sec: float) -> str:
    """The first test that failed; empty if none did."""
    code, output = _pytest(tree, ["-x", *tests], limit_sec, {})
    if code is None:
        return "time ran out"
    if code == 0:
        return ""
    failed = _FAILED.search(output)
    return failed[1] if failed else f"pytest ended with {code}"


def _pytest(
    tree: Path, options: list[str], limit_sec: float, variables: dict[str, str]
) -> tuple[int | None, str]:
    """Exit code and output; None if it took too long."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(tree / "src"), str(ROOT))),
        "PYTHONDONTWRITEBYTECODE": "1",
        **variables,
    }
    usual = ["-q", "-m", "not verify and not slow", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *usual, *options],
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
            return None, ""
    return running.returncode, output


def judge(mutant: Mutant, tree: Path, tests: list[LearnedTest], budget_sec: float = BUDGET_SEC) -> Verdict:
    names, usual_sec = nearest_tests(mutant, tests, tree, budget_sec)
    target = tree / mutant.file
    original = target.read_text(encoding="utf-8")
    began = time.monotonic()
    target.write_text(mutant.applied_to(original), encoding="utf-8")
    try:
        found = run_tests(tree, names, HANG_LEAST_SEC + HANG_TIMES * usual_sec) if names else ""
    finally:
        target.write_text(original, encoding="utf-8")
    if ".py" in found and run_tests(tree, [found], HANG_LEAST_SEC + HANG_TIMES * usual_sec):
        found = ""  # it fails on the unchanged code, too
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


def judge_all(
    mutants: list[Mutant], tests: list[LearnedTest], jobs: int, budget_sec: float
) -> Iterator[Verdict]:
    trees: Queue[Path] = Queue()
    for number in range(jobs):
        trees.put(copy_of_checkout(number))

    def one(mutant: Mutant) -> Verdict:
        tree = trees.get()
        try:
            return judge(mutant, tree, tests, budget_sec)
        finally:
            trees.put(tree)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(one, mutants)


def known_tests(mutants: list[Mutant], jobs: int) -> list[LearnedTest]:
    """As they were learned for the same code before, or learned now."""
    directories = sorted({name for mutant in mutants for name in TESTS[package_of(mutant.file)]})
    code = [path for name in ("src", "tests") for path in sorted((ROOT / name).rglob("*.py"))]
    digest = hashlib.sha256(repr(directories).encode() + b"".join(path.read_bytes() for path in code))
    file = WORK / f"tests-{digest.hexdigest()[:16]}.json"
    if not file.is_file():
        tests = learn_tests(copy_of_checkout(0), directories, jobs)
        rows = [(test.name, test.seconds, sorted(test.functions)) for test in tests]
        file.write_text(json.dumps(rows), encoding="utf-8")
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [LearnedTest(name, seconds, frozenset(functions)) for name, seconds, functions in rows]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="which ones are chosen")
    parser.add_argument("--only", default="", help="only files whose path begins with this")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at a time")
    parser.add_argument("--budget", type=float, default=BUDGET_SEC, help="seconds of tests for each mutant")
    parser.add_argument("--list", action="store_true", help="show the mutants and run nothing")
    parser.add_argument("--skip", type=int, default=0, help="leave out this many, to continue a run")
    options = parser.parse_args(arguments)
    mutants = choose(options.count, options.seed, options.only)[options.skip :]
    if options.list:
        for mutant in mutants:
            print(mutant.describe())
        return 0
    WORK.mkdir(parents=True, exist_ok=True)
    tests = known_tests(mutants, options.jobs)
    print(f"{len(tests)} tests pass on the unchanged code", flush=True)
    verdicts = []
    for number, verdict in enumerate(
        judge_all(mutants, tests, options.jobs, options.budget), options.skip + 1
    ):
        verdicts.append(verdict)
        result = f"found by {verdict.by}" if verdict.found else "SURVIVED"
        print(f"{number:4} {verdict.seconds:6.1f} s  {verdict.mutant.describe()}  {result}", flush=True)
    survivors = [verdict.mutant for verdict in verdicts if not verdict.found]
    (WORK / "survivors.json").write_text(json.dumps([one._asdict() for one in survivors], indent=1))
    print(f"{len(verdicts) - len(survivors)} of {len(verdicts)} mutants found")
    for mutant in survivors:
        print(f"survived: {mutant.describe()}")
    return 0 if len(survivors) <= len(verdicts) // 10 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
