"""Answers one by one, as measured of a real API server: status, reason, headers, shape."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.sim.kube_api.asking import MERGE
from tests.sim.kube_api.clusters import NODE, Cluster

pytestmark = pytest.mark.slow

STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
ON_NODE = {"fieldSelector": f"spec.nodeName={NODE}"}
REVIEW = {
    "kind": "SelfSubjectAccessReview",
    "apiVersion": "authorization.k8s.io/v1",
    "spec": {"resourceAttributes": {"verb": "list", "resource": "pods"}},
}
EVENT = {
    "metadata": {"generateName": "p0."},
    "involvedObject": {"kind": "Pod", "name": "p0", "namespace": "{ns}"},
    "reason": "Testing",
    "message": "for a test",
    "type": "Warning",
}


class Case(NamedTuple):
    """What is asked, and what a real server answers."""

    what: str
    method: str
    path: str
    status: int
    reason: str = ""  # of a refusal
    query: dict[str, str] = {}  # noqa: RUF012 - nobody changes a case
    body: Any = None
    content_type: str = "application/json"
    details: dict[str, Any] = {}  # noqa: RUF012 - these members, and perhaps others
    headers: dict[str, str] = {}  # noqa: RUF012
    token: str | None = None
    cause: str = ""


REFUSED = (
    Case("a broken token", "GET", "{pods}", 400, "BadRequest", {"limit": "1", "continue": "broken"}),
    Case(
        "a version that is compacted",
        "GET",
        "{pods}",
        410,
        "Expired",
        {"resourceVersion": "1", "resourceVersionMatch": "Exact"},
    ),
    Case(
        "a version of the future",
        "GET",
        "{pods}",
        504,
        "Timeout",
        {"resourceVersion": "99999999999", "resourceVersionMatch": "NotOlderThan"},
        details={"retryAfterSeconds": 1},
        headers={"retry-after": "1"},
        cause="ResourceVersionTooLarge",
    ),
    Case("an unknown field", "GET", "{pods}", 400, "BadRequest", {"fieldSelector": "spec.color=red"}),
    Case("a watch from no number", "GET", "{pods}", 500, "", {"watch": "true", "resourceVersion": "abc"}),
    Case("a missing pod", "GET", "{pods}/ghost", 404, "NotFound", details={"name": "ghost", "kind": "pods"}),
    Case("a patch of a missing pod", "PATCH", "{pods}/ghost", 404, "NotFound", body={}, content_type=MERGE),
    Case("an unknown kind", "GET", "/api/v1/namespaces/{ns}/unknowns", 404, "NotFound"),
    Case(
        "a pod that exists",
        "POST",
        "{pods}",
        409,
        "AlreadyExists",
        body={"metadata": {"name": "p0"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        details={"name": "p0", "kind": "pods"},
    ),
    Case(
        "a patch of a version that is past",
        "PATCH",
        "{pods}/p0",
        409,
        "Conflict",
        body={"metadata": {"resourceVersion": "1", "annotations": {"a": "b"}}},
        content_type=MERGE,
        details={"name": "p0", "kind": "pods"},
    ),
    Case("no JSON", "PATCH", "{pods}/p0", 400, "BadRequest", body=b"{", content_type=MERGE),
    Case("no kind of patch", "PATCH", "{pods}/p0", 415, "UnsupportedMediaType", body={}),
    Case(
        "an annotation that is a number",
        "PATCH",
        "{pods}/p0",
        400,
        "BadRequest",
        body={"metadata": {"annotations": {"nvshare.com/gpu-core-limit": 30}}},
        content_type=MERGE,
    ),
    Case(
        "a name that is none",
        "POST",
        "{pods}",
        422,
        "Invalid",
        body={"metadata": {"name": "Not_A_Name"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    ),
    Case(
        "a pod without containers",
        "POST",
        "{pods}",
        422,
        "Invalid",
        body={"metadata": {"name": "q"}, "spec": {}},
    ),
    Case(
        "another node for a pod",
        "PATCH",
        "{pods}/p0",
        422,
        "Invalid",
        body={"spec": {"nodeName": "elsewhere"}},
        content_type=STRATEGIC,
    ),
    Case("a wrong token", "GET", "{pods}", 401, "Unauthorized", token="wrong"),
    Case(
        "no token", "GET", "{pods}", 403, "Forbidden", headers={"x-content-type-options": "nosniff"}, token=""
    ),
)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.what.replace(" ", "-"))
def test_a_refusal_is_a_status(cluster: Cluster, case: Case) -> None:
    there = (
        cluster
        if case.token is None
        else Cluster(cluster.asker.as_user(case.token), cluster.namespace, cluster.api)
    )
    got = there.ask(case.method, case.path, case.body, content_type=case.content_type, **case.query)
    assert got.status == case.status, got
    status = got.body
    assert {name: status[name] for name in ("kind", "apiVersion", "status", "code")} == {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": case.status,
    }
    assert isinstance(status["metadata"], dict)
    assert status["message"]
    if case.reason:
        assert status["reason"] == case.reason
    assert status.get("details", {}) | case.details == status.get("details", {})
    causes = [cause["reason"] for cause in status.get("details", {}).get("causes", ())]
    assert not case.cause or causes == [case.cause]
    assert got.headers | case.headers == got.headers
    assert got.headers["content-type"] == "application/json"
    assert got.headers["cache-control"] == "no-cache, private"
    assert "audit-id" in got.headers
    assert int(got.headers["content-length"]) > 0
    fair = {name for name in got.headers if name.startswith("x-kubernetes-pf-")}
    assert len(fair) == (0 if case.status == 401 else 2)


def test_who_is_not_known_is_anonymous(cluster: Cluster) -> None:
    got = Cluster(cluster.asker.as_user(""), cluster.namespace, None).ask("GET", "/api/v1/pods")
    assert got.body["message"] == (
        'pods is forbidden: User "system:anonymous" cannot list resource "pods" '
        'in API group "" at the cluster scope'
    )
    assert got.body["details"] == {"kind": "pods"}


def test_pages_of_a_list_show_one_moment(cluster: Cluster) -> None:
    first = cluster.ask("GET", "{pods}", limit=2, **ON_NODE)
    assert first.status == 200
    assert first.headers["transfer-encoding"] == "chunked"
    page = first.body
    assert (page["kind"], page["apiVersion"]) == ("PodList", "v1")
    assert page["metadata"].keys() == {"resourceVersion", "continue"}
    assert len(page["items"]) == 2
    assert not any({"kind", "apiVersion"} & item.keys() for item in page["items"])
    cluster.add_pod("late")
    rest = cluster.ask("GET", "{pods}", limit=2, **ON_NODE, **{"continue": page["metadata"]["continue"]}).body
    cluster.ask("DELETE", "{pods}/late", gracePeriodSeconds=0)
    assert rest["metadata"] == {"resourceVersion": page["metadata"]["resourceVersion"]}
    names = [item["metadata"]["name"] for item in (*page["items"], *rest["items"])]
    assert names == ["p0", "p1", "p2"], "what came between the pages is not in them"


def test_without_a_selector_the_rest_is_counted(cluster: Cluster) -> None:
    page = cluster.ask("GET", "{pods}", limit=1).body
    assert page["metadata"]["remainingItemCount"] == 2


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (MERGE, {"metadata": {"annotations": {"nvshare.com/gpu-core-limit": "30"}}}),
        (STRATEGIC, {"metadata": {"annotations": {"nvshare.com/gpu-core-limit": "30"}}}),
        (
            JSON_PATCH,
            [{"op": "add", "path": "/metadata/annotations", "value": {"nvshare.com/gpu-core-limit": "30"}}],
        ),
        (
            "application/apply-patch+yaml",
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": "p1", "annotations": {"nvshare.com/gpu-core-limit": "30"}},
            },
        ),
    ],
)
def test_a_patch_sets_and_null_removes(cluster: Cluster, content_type: str, body: Any) -> None:
    query = {"fieldManager": "nvshare-test"} if "apply" in content_type else {}
    got = cluster.ask("PATCH", "{pods}/p1", body, content_type=content_type, **query)
    assert got.status == 200, got
    assert (got.body["kind"], got.body["apiVersion"]) == ("Pod", "v1")
    assert got.body["metadata"]["annotations"] == {"nvshare.com/gpu-core-limit": "30"}
    removal = {"metadata": {"annotations": {"nvshare.com/gpu-core-limit": None}}}
    got = cluster.ask("PATCH", "{pods}/p1", removal, content_type=MERGE)
    assert "annotations" not in got.body["metadata"], "the last one takes the member with it"


def test_a_write_that_changes_nothing_makes_no_version(cluster: Cluster) -> None:
    before = cluster.ask("GET", "{pods}/p1").body["metadata"]["resourceVersion"]
    after = cluster.ask("PATCH", "{pods}/p1", {}, content_type=MERGE).body["metadata"]["resourceVersion"]
    assert after == before


def test_a_dry_run_changes_nothing(cluster: Cluster) -> None:
    body = {"metadata": {"annotations": {"a": "b"}}}
    got = cluster.ask("PATCH", "{pods}/p1", body, content_type=MERGE, dryRun="All")
    assert got.body["metadata"]["annotations"] == {"a": "b"}
    assert "annotations" not in cluster.ask("GET", "{pods}/p1").body["metadata"]


def test_status_is_written_by_itself(cluster: Cluster) -> None:
    cluster.add_pod("by-itself")
    body = {"metadata": {"annotations": {"a": "b"}}, "status": {"phase": "Running"}}
    got = cluster.ask("PATCH", "{pods}/by-itself", body, content_type=MERGE).body
    assert got["status"]["phase"] == "Pending"
    got = cluster.ask(
        "PATCH", "{pods}/by-itself/status", {"status": {"phase": "Running"}}, content_type=MERGE
    ).body
    assert got["status"]["phase"] == "Running"
    cluster.ask("DELETE", "{pods}/by-itself", gracePeriodSeconds=0)


def test_a_new_pod_is_filled_in(cluster: Cluster) -> None:
    found = cluster.ask("GET", "{pods}/p0").body
    assert {item["key"] for item in found["spec"]["tolerations"]} == {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    }
    assert found["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert (
        found["spec"] | {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "priority": 0}
        == found["spec"]
    )
    assert found["status"] | {"phase": "Pending", "qosClass": "BestEffort"} == found["status"]
    assert found["metadata"]["managedFields"][0]["fieldsType"] == "FieldsV1"


def test_what_is_made_is_answered_by_201(cluster: Cluster) -> None:
    event = {**EVENT, "involvedObject": {"kind": "Pod", "name": "p0", "namespace": cluster.namespace}}
    got = cluster.ask("POST", "/api/v1/namespaces/{ns}/events", event)
    assert got.status == 201
    assert got.body["metadata"]["name"].startswith("p0.")
    got = cluster.ask("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", REVIEW)
    assert (got.status, got.body["status"]["allowed"]) == (201, True)


def test_an_eviction_is_answered_by_a_status(cluster: Cluster) -> None:
    cluster.add_pod("unwanted")
    body = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "unwanted"}}
    got = cluster.ask("POST", "{pods}/unwanted/eviction", body)
    assert got.status == 201
    assert got.body | {"kind": "Status", "status": "Success", "code": 201} == got.body
    left = cluster.ask("GET", "{pods}/unwanted")
    assert left.status == 404 or "deletionTimestamp" in left.body["metadata"]


def test_a_budget_forbids_an_eviction(cluster: Cluster) -> None:
    cluster.add_pod("wanted")
    label = {"metadata": {"labels": {"app": "wanted"}}}
    cluster.ask("PATCH", "{pods}/wanted", label, content_type=MERGE)
    cluster.ask("PATCH", "{pods}/wanted/status", {"status": {"phase": "Running"}}, content_type=MERGE)
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "wanted"}}},
    }
    assert cluster.ask("POST", "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", budget).status == 201
    body = {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "wanted"}}
    got = cluster.ask("POST", "{pods}/wanted/eviction", body)
    assert (got.status, got.body["reason"]) == (429, "TooManyRequests")
    cluster.ask("DELETE", "{pods}/wanted", gracePeriodSeconds=0)
