"""Whose pod is it."""

from __future__ import annotations

import pytest

from nvshare.pods.owners import owner_of, pod_of_user


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        ("user-1000/train", 1000),
        ("container:user-1000/abc", 1000),
        ("default/train", None),
        ("user-1000x/train", None),
        ("user-01/train", None),
        ("xuser-1000/train", None),
        ("pod:0d4a5b6c-1111-2222-3333-444455556666", None),
        ("process:1:2", None),
        ("user-1000/", None),
    ],
)
def test_the_namespace_tells(pod: str, owner: int | None) -> None:
    assert owner_of(pod) == owner


def test_two_users_can_use_one_name() -> None:
    assert pod_of_user(1000, "default/train") == "user-1000/train"
    assert pod_of_user(1001, "default/train") == "user-1001/train"
    assert pod_of_user(1000, "user-1000/train") == "user-1000/train"
    assert pod_of_user(1000, "user-1001/train") is None
    assert pod_of_user(1000, "ml/train") is None
