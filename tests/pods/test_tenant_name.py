"""A tenant's name: its text and back, its owner, its labels."""

from __future__ import annotations

import pytest

from nvshare.pods.cgroups import HOST, Place
from nvshare.pods.tenant_name import TenantKind, TenantName


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
    assert TenantName.of_key(pod).owner_uid == owner


def of_user(uid: int, text: str) -> str | None:
    tenant = TenantName.parse(text)
    assert tenant is not None
    own = tenant.of_user(uid)
    return None if own is None else own.key


def test_two_users_can_use_one_name() -> None:
    assert of_user(1000, "default/train") == "user-1000/train"
    assert of_user(1001, "train") == "user-1001/train"
    assert of_user(1000, "user-1000/train") == "user-1000/train"
    assert of_user(1000, "user-1001/train") is None
    assert of_user(1000, "ml/train") is None


UID = "0d4a5b6c-1111-2222-3333-444455556666"


@pytest.mark.parametrize(
    ("key", "kind", "labels"),
    [
        (f"pod:{UID}", TenantKind.KUBERNETES_POD, ("", f"pod:{UID}")),
        ("container:user-7/abc", TenantKind.CONTAINER, ("", "container:user-7/abc")),
        ("process:1:2", TenantKind.PROCESS, ("", "process:1:2")),
        ("ml/train", TenantKind.LOCAL_POD, ("ml", "train")),
    ],
)
def test_a_key_makes_the_name_that_makes_the_key(key: str, kind: TenantKind, labels: tuple[str, str]) -> None:
    tenant = TenantName.of_key(key)
    assert (tenant.kind, tenant.key, tenant.labels) == (kind, key, labels)
    assert TenantName.parse(key) == tenant


def test_the_kernel_names_pods_and_containers() -> None:
    pod = TenantName.of_place(Place(pod_uid=UID))
    assert pod is not None
    assert pod.key == f"pod:{UID}"
    assert pod._replace(namespace="ml", name="train-0").labels == ("ml", "train-0"), "the key stays"
    assert pod._replace(namespace="ml", name="train-0").key == pod.key
    assert TenantName.of_place(Place(container="abc")) == TenantName(TenantKind.CONTAINER, "abc")
    assert TenantName.of_place(HOST) is None
    assert TenantName.of_process(1, 2).key == "process:1:2"
