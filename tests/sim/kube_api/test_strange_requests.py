"""Whatever is sent, the double answers, and what it stores stays an object that it can show."""

from __future__ import annotations

import asyncio
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from nvshare.sim.kube_api.access import ADMIN, Access, Right
from nvshare.sim.kube_api.answers import Answer
from nvshare.sim.kube_api.objects import TRUSTED
from nvshare.sim.kube_api.protobuf import CONTENT_TYPE
from nvshare.sim.kube_api.requests import parse_head
from nvshare.sim.kube_api.resources import NAMESPACES, PODS
from nvshare.sim.kube_api.samples import pod
from nvshare.sim.kube_api.service import Service
from nvshare.sim.kube_api.store import Store, decode, encode
from nvshare.sim.kube_api.writes import APPLY

POD = "/api/v1/namespaces/default/pods/p0"
PODS_PATH = "/api/v1/namespaces/default/pods"
PATCHES = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    APPLY,
)
WORDS = st.sampled_from(
    [
        *("metadata", "name", "labels", "annotations", "finalizers", "ownerReferences", "managedFields"),
        *("spec", "containers", "env", "status", "p0", "$patch"),
        *("op", "path", "value", "add", "/spec", "/metadata/labels"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


def service() -> Service:
    access = Access()
    access.add_user(ADMIN, (Right(frozenset({"*"}), frozenset({"*"})),), "token")
    found = Service(Store(), access)
    found.objects.create(NAMESPACES, "", {"metadata": {"name": "default"}}, TRUSTED)
    found.objects.create(PODS, "default", pod("p0"), TRUSTED)
    return found


def ask(asked: Service, method: str, path: str, body: bytes, content_type: str) -> Answer:
    request = parse_head(method, path, {"authorization": "Bearer token", "content-type": content_type})
    request.body = body
    answer = asyncio.run(asked.answer(request))
    assert isinstance(answer, Answer)
    return answer


def assert_sound(asked: Service) -> None:
    for path in (PODS_PATH, POD):
        shown = ask(asked, "GET", path, b"", "")
        assert shown.status in (200, 404)
        assert decode(shown.body)["kind"] in ("PodList", "Pod", "Status")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(kind=st.sampled_from(PATCHES), body=ANYTHING)
def test_any_patch(kind: str, body: Any) -> None:
    asked = service()
    path = f"{POD}?fieldManager=m" if kind == APPLY else POD
    answer = ask(asked, "PATCH", path, encode(body), kind)
    assert answer.status in (200, 201, 400, 409, 422), answer.body
    assert_sound(asked)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(spec=ANYTHING, metadata=st.dictionaries(WORDS, ANYTHING, max_size=3), status=ANYTHING)
def test_any_pod(spec: Any, metadata: Any, status: Any) -> None:
    asked = service()
    given_pod = {"metadata": {**metadata, "name": "p1"}, "spec": spec, "status": status}
    answer = ask(asked, "POST", PODS_PATH, encode(given_pod), "application/json")
    assert answer.status in (201, 400, 422), answer.body
    assert_sound(asked)


@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=200))
def test_any_protobuf(body: bytes) -> None:
    answer = ask(service(), "POST", "/api/v1/namespaces", b"k8s\0" + body, CONTENT_TYPE)
    assert answer.status in (400, 415, 422), answer.body


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/api/v1/namespaces/default/pods/p0/nothing", 404),
        ("GET", "/api/v1/pods/p0", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/apis/nothing/v1/pods", 404),
        ("POST", POD, 405),
        ("TRACE", PODS_PATH, 405),
        ("GET", f"{PODS_PATH}?limit=many", 400),
        ("GET", f"{PODS_PATH}?labelSelector=%3D%3D", 400),
        ("POST", f"{PODS_PATH}?dryRun=Some", 400),
    ],
)
def test_what_makes_no_sense(method: str, path: str, status: int) -> None:
    assert ask(service(), method, path, b"{}", "application/json").status == status
