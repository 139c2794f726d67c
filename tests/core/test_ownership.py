"""No module writes what another owns: the rule that keeps a GPU's state in one piece, checked by reading.

A field belongs to the module that defines its class. Writing is assigning to it, deleting it, changing an
element of it, or calling a method that changes a container. Everybody else calls the owner's methods.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

import nvshare.core

ROOT: Final = Path(nvshare.core.__file__).parent
MODULES: Final = sorted(path for path in ROOT.rglob("*.py") if path.name != "__init__.py")
ATTRIBUTES_MAX: Final = 20
VALUES: Final = ("NamedTuple", "frozen=True", "Enum")
CHANGING: Final = frozenset(
    (
        *("add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"),
        *("popleft", "remove", "reverse", "setdefault", "sort", "update"),
    )
)
"""Methods by which lists, dicts, sets and queues are changed."""


class Write(NamedTuple):
    line: int
    field: str
    by_self: bool


def slots_of(node: ast.ClassDef) -> list[str]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__slots__":
            found = ast.literal_eval(statement.value)
            return list(found) if isinstance(found, tuple) else [found]
    return []


def fields_of(node: ast.ClassDef) -> set[str]:
    """Of its instances: its slots, what its body declares, or what its methods assign to self."""
    fields = set(slots_of(node))
    fields |= {ast.unparse(one.target) for one in node.body if isinstance(one, ast.AnnAssign)}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and is_self(inner.value):
            fields.add(inner.attr)
    return fields


def is_value(node: ast.ClassDef) -> bool:
    """Made once and never changed: a row of settings or of figures, not state."""
    return any(word in ast.unparse(one) for one in [*node.bases, *node.decorator_list] for word in VALUES)


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def owners() -> dict[str, set[Path]]:
    """By field, the modules that define a class with it."""
    found: dict[str, set[Path]] = {}
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                for field in fields_of(node):
                    found.setdefault(field, set()).add(path)
    return found


def targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign | ast.Delete):
        yield from node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For):
        yield node.target
    elif isinstance(node, ast.With):
        yield from (item.optional_vars for item in node.items if item.optional_vars is not None)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in CHANGING:
            yield node.func.value
        elif ast.unparse(node.func) in ("heapq.heappush", "heapq.heappop"):
            yield node.args[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id in ("insort", "heappush", "heappop"):
            yield node.args[0]
        elif node.func.id in ("setattr", "delattr"):
            yield ast.Attribute(node.args[0], ast.unparse(node.args[1]).strip("'\""), ast.Store())


def writes(tree: ast.AST) -> Iterator[Write]:
    for node in ast.walk(tree):
        for target in targets(node):
            yield from written(target)


def written(target: ast.expr) -> Iterator[Write]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from written(element)
    while isinstance(target, ast.Subscript | ast.Starred):
        target = target.value
    if isinstance(target, ast.Attribute):
        yield Write(target.lineno if hasattr(target, "lineno") else 0, target.attr, is_self(target.value))


def strangers(tree: ast.AST, path: Path, owned: dict[str, set[Path]]) -> list[str]:
    """Writes to fields that no class of this module has."""
    return [
        f"{path.name}:{write.line} writes {write.field}, which belongs to"
        f" {', '.join(sorted(owner.name for owner in owned[write.field]))}"
        for write in writes(tree)
        if not write.by_self and write.field in owned and path not in owned[write.field]
    ]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_writes_only_fields_of_its_own_classes(path: Path) -> None:
    assert strangers(tree_of(path), path, owners()) == []


@pytest.mark.parametrize(
    "line",
    [
        "gpu.occupants.holder = None",
        "tenant.account.virtual_ns += 1",
        "gpu.occupants.group[tenant] = None",
        "del gpu.resident_set.outside[tenant]",
        "gpu.queue.arrivals.append(tenant)",
        "tenant.gate.wanting, x = 1, 2",
        "setattr(tenant.seat, 'since_ns', 1)",
        "heapq.heappush(gpu.idle_tenants._heap, tenant)",
        "for gpu.pace.turn_ns in (1, 2): pass",
    ],
)
def test_every_way_of_writing_is_seen(line: str) -> None:
    assert strangers(ast.parse(line), ROOT / "policy/turns.py", owners())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_class_has_more_attributes_than_a_reader_can_keep_in_mind(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ClassDef):
            if is_value(node):
                continue
            fields = fields_of(node)
            assert len(fields) <= ATTRIBUTES_MAX, f"{node.name} has {len(fields)}"


def test_policies_have_no_state_of_their_own() -> None:
    for path in sorted((ROOT / "policy").glob("*.py")):
        tree = tree_of(path)
        assert not [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)], path.name


def test_only_one_function_moves_a_tenant() -> None:
    """``Tenant.enter_state`` is called in one place, and so is each book's putting and taking."""
    callers = {
        path.name
        for path in MODULES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "enter_state"
    }
    assert callers == {"gpu.py"}
