"""Patches, selectors and owners of fields, each as a table."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from nvshare.sim.kube_api import managed_fields
from nvshare.sim.kube_api.errors import ApiError
from nvshare.sim.kube_api.patches import json_patch, merge_patch, strategic_merge
from nvshare.sim.kube_api.resources import PODS
from nvshare.sim.kube_api.selectors import field_matcher, label_matcher

POD: dict[str, Any] = {
    "metadata": {"name": "p", "labels": {"app": "a"}, "finalizers": ["one"]},
    "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}], "args": [1, 2]},
}


@pytest.mark.parametrize(
    ("patch", "path", "value"),
    [
        ({"metadata": {"labels": {"app": None}}}, ("metadata", "labels"), {}),
        ({"metadata": {"labels": None}}, ("metadata",), {"name": "p", "finalizers": ["one"]}),
        ({"spec": {"containers": [{"name": "c"}]}}, ("spec", "containers"), [{"name": "c"}]),
        ({"spec": {"args": [3]}}, ("spec", "args"), [3]),
    ],
)
def test_merge(patch: Any, path: tuple[str, ...], value: Any) -> None:
    assert _at(_unchanged(merge_patch, patch), path) == value


@pytest.mark.parametrize(
    ("patch", "path", "value"),
    [
        (
            {"spec": {"containers": [{"name": "b", "image": "2"}]}},
            ("spec", "containers"),
            [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}],
        ),
        (
            {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
            ("spec", "containers"),
            [{"name": "b", "image": "1"}],
        ),
        (
            {"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}},
            ("spec", "containers"),
            [{"name": "c"}],
        ),
        ({"spec": {"args": [3]}}, ("spec", "args"), [3]),
        ({"metadata": {"finalizers": ["two"]}}, ("metadata", "finalizers"), ["one", "two"]),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": ["one"]}}, ("metadata", "finalizers"), []),
        ({"metadata": {"$retainKeys": ["name"], "name": "p"}}, ("metadata",), {"name": "p"}),
        ({"metadata": {"labels": {"$patch": "replace", "x": "y"}}}, ("metadata", "labels"), {"x": "y"}),
        ({"metadata": {"labels": {"app": None, "x": "y"}}}, ("metadata", "labels"), {"x": "y"}),
    ],
)
def test_strategic_merge(patch: Any, path: tuple[str, ...], value: Any) -> None:
    assert _at(_unchanged(strategic_merge, patch), path) == value


@pytest.mark.parametrize(
    ("operation", "path", "value"),
    [
        ({"op": "add", "path": "/spec/args/-", "value": 3}, ("spec", "args"), [1, 2, 3]),
        ({"op": "add", "path": "/spec/args/0", "value": 0}, ("spec", "args"), [0, 1, 2]),
        ({"op": "replace", "path": "/spec/args/1", "value": 7}, ("spec", "args"), [1, 7]),
        ({"op": "remove", "path": "/spec/args/0"}, ("spec", "args"), [2]),
        (
            {"op": "add", "path": "/metadata/labels/a~1b~0c", "value": "d"},
            ("metadata", "labels"),
            {"app": "a", "a/b~c": "d"},
        ),
        ({"op": "copy", "from": "/spec/args/0", "path": "/spec/args/2"}, ("spec", "args"), [1, 2, 1]),
        ({"op": "move", "from": "/spec/args/0", "path": "/spec/args/1"}, ("spec", "args"), [2, 1]),
        ({"op": "test", "path": "/metadata/name", "value": "p"}, ("metadata", "name"), "p"),
    ],
)
def test_json_patch(operation: Any, path: tuple[str, ...], value: Any) -> None:
    assert _at(_unchanged(json_patch, [operation]), path) == value


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/metadata/name", "value": "q"},
        {"op": "replace", "path": "/metadata/nothing", "value": 1},
        {"op": "remove", "path": "/spec/args/9"},
        {"op": "add", "path": "spec", "value": 1},
        {"op": "fly", "path": "/spec"},
        {"path": "/spec"},
        7,
    ],
)
def test_a_bad_json_patch_is_refused(operation: Any) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch(POD, [operation])
    assert refused.value.code == 422


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("app=a", True),
        ("app==a,tier!=x", True),
        ("app!=a", False),
        ("app in (a, b)", True),
        ("app notin (a,b)", False),
        ("tier notin (a)", True),
        ("app", True),
        ("!app", False),
        ("!tier", True),
        ("tier", False),
    ],
)
def test_label_selectors(selector: str, matches: bool) -> None:
    judge = label_matcher(selector)
    assert judge is not None
    assert judge(POD) is matches


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("metadata.name=p", True),
        ("metadata.name!=p", False),
        ("spec.nodeName=", True),
        ("spec.nodeName=n1", False),
        ("status.phase!=Running,metadata.name=p", True),
    ],
)
def test_field_selectors(selector: str, matches: bool) -> None:
    judge = field_matcher(selector, PODS)
    assert judge is not None
    assert judge(POD) is matches


def test_fields_are_a_tree_with_elements_by_key() -> None:
    assert managed_fields.own_fields(POD) == {
        "f:metadata": {"f:labels": {"f:app": {}}, "f:finalizers": {}},
        "f:spec": {
            "f:containers": {
                'k:{"name":"a"}': {"f:name": {}, "f:image": {}},
                'k:{"name":"b"}': {"f:name": {}, "f:image": {}},
            },
            "f:args": {},
        },
    }


def test_who_changes_a_field_owns_it_alone() -> None:
    metadata: dict[str, Any] = {}
    managed_fields.record_update(metadata, "ann", "v1", {"f:a": {}, "f:b": {}}, "then")
    managed_fields.record_update(metadata, "bob", "v1", {"f:a": {}}, "later")
    assert {entry["manager"]: entry["fieldsV1"] for entry in metadata["managedFields"]} == {
        "ann": {"f:b": {}},
        "bob": {"f:a": {}},
    }
    with pytest.raises(ApiError, match=r'Apply failed with 1 conflict: conflict with "bob" using v1: \.a'):
        managed_fields.check_conflicts(metadata, "eve", {"f:a": {}, "f:c": {}})


def _unchanged(patch_with: Any, patch: Any) -> Any:
    """Apply a patch; what it is applied to stays as it was."""
    before = copy.deepcopy(POD)
    patched = patch_with(POD, patch)
    assert before == POD
    return patched


def _at(found: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        found = found[part]
    return found
