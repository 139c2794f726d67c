"""Mutants: which changes are made, which tests run first, and what counts as found."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent
from typing import Final

import pytest

import tools.mutants
from tools.mutants import ROOT, LearnedTest, Mutant, choose, judge, learn_tests, mutants_of, nearest_tests

SOURCE: Final = dedent(
    """
    def larger(one, other):
        return one if one > other else other

    def unused(one):
        return one + 1

    def both(one, other):
        return one and not other
    """
)
TEST: Final = dedent(
    """
    from nvshare.core.toy import larger

    def test_larger():
        assert larger(1, 2) == 2
    """
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {
        "src/nvshare/__init__.py": "",
        "src/nvshare/core/__init__.py": "",
        "src/nvshare/core/toy.py": SOURCE,
        "tests/core/test_toy.py": TEST,
        "tests/core/test_other.py": "def test_nothing():\n    assert True\n",
        "tests/sim/test_unused.py": "def test_nothing():\n    assert 'unused'\n",
        "pytest.ini": "[pytest]\nmarkers =\n    verify: none\n    slow: none\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def toys(tree: Path) -> dict[str, Mutant]:
    return {m.after: m for m in mutants_of(tree / "src/nvshare/core/toy.py", "src/nvshare/core/toy.py")}


def test_comparisons_signs_and_conditions_are_changed(tree: Path) -> None:
    found = toys(tree)
    assert set(found) == {"one <= other", "one - 1", "one or not other", "other"}
    assert found["one <= other"].applied_to(SOURCE) == SOURCE.replace("one > other", "(one <= other)")
    assert found["one - 1"].describe() == "src/nvshare/core/toy.py:6 unused: `one + 1` -> `one - 1`"


def learned(tree: Path) -> list[LearnedTest]:
    return learn_tests(tree, ["core", "sim"], 1)


def test_tests_that_call_the_function_come_first_then_those_that_mention_it(tree: Path) -> None:
    tests = learned(tree)
    assert {test.name: bool(test.functions) for test in tests} == {
        "tests/core/test_toy.py::test_larger": True,
        "tests/core/test_other.py::test_nothing": False,
        "tests/sim/test_unused.py::test_nothing": False,
    }
    callers, _ = nearest_tests(toys(tree)["one <= other"], tests, tree, 1000.0)
    assert callers[0] == "tests/core/test_toy.py::test_larger"
    (tree / "tests/core/test_toy.py").rename(tree / "tests/core/test_game.py")
    tests = [test._replace(name=test.name.replace("test_toy", "test_game")) for test in tests]
    by_name, total_sec = nearest_tests(toys(tree)["one - 1"], tests, tree, 1000.0)
    assert by_name[0] == "tests/sim/test_unused.py::test_nothing"
    assert len(by_name) == 3
    assert total_sec == pytest.approx(sum(test.seconds for test in tests))
    assert nearest_tests(toys(tree)["one - 1"], tests, tree, 0.0)[0] == by_name[:1], "at least one"


def test_a_change_is_found_by_a_test_that_fails_only_with_it(tree: Path) -> None:
    tests = learned(tree)
    found = judge(toys(tree)["one <= other"], tree, tests)
    assert (found.found, found.by) == (True, "tests/core/test_toy.py::test_larger")
    assert (tree / "src/nvshare/core/toy.py").read_text() == SOURCE
    assert not judge(toys(tree)["one - 1"], tree, tests).found, "no test notices"
    (tree / "tests/core/test_toy.py").write_text("def test_larger():\n    assert False\n")
    assert not judge(toys(tree)["one <= other"], tree, tests).found, "it fails without a change"


def test_a_change_that_makes_a_test_hang_is_found(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools.mutants, "HANG_LEAST_SEC", 10.0)
    hanging = "from nvshare.core.toy import larger\ndef test_larger():\n    while larger(1, 2) == 1: pass\n"
    (tree / "tests/core/test_toy.py").write_text(hanging)
    tests = [LearnedTest("tests/core/test_toy.py::test_larger", 0.0, frozenset())]
    found = judge(toys(tree)["one <= other"], tree, tests)
    assert (found.found, found.by) == (True, "time ran out")


def test_the_same_seed_gives_the_same_mutants_and_each_of_them_is_python() -> None:
    first, again, other = (choose(5, seed, "src/nvshare/pods") for seed in (1, 1, 2))
    assert first == again != other
    for mutant in choose(1000, 1, "src/nvshare/pods"):
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        assert ast.dump(ast.parse(mutant.applied_to(text))) != ast.dump(ast.parse(text)), mutant.describe()
