"""Watches as measured of a real API server, here and in a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.sim.kube_api.asking import MERGE, Asker
from tests.sim.kube_api.clusters import NODE, Cluster, double

pytestmark = pytest.mark.slow

ON_NODE = {"fieldSelector": f"spec.nodeName={NODE}"}
STREAMING_LIST = {
    "sendInitialEvents": "true",
    "resourceVersionMatch": "NotOlderThan",
    "allowWatchBookmarks": "true",
}


def version_of(cluster: Cluster) -> str:
    return str(cluster.ask("GET", "{pods}").body["metadata"]["resourceVersion"])


def all_events(cluster: Cluster, **query: Any) -> list[dict[str, Any]]:
    """Until the stream ends."""
    with cluster.asker.watching(cluster.pods, **query) as events:
        return list(events)


def test_a_watch_from_nowhere_begins_with_what_exists(cluster: Cluster) -> None:
    events = all_events(cluster, timeoutSeconds=1, **ON_NODE)
    assert sorted((event["type"], event["object"]["metadata"]["name"]) for event in events) == [
        ("ADDED", "p0"),
        ("ADDED", "p1"),
        ("ADDED", "p2"),
    ]
    assert {(event["object"]["kind"], event["object"]["apiVersion"]) for event in events} == {("Pod", "v1")}


def test_a_bookmark_comes_before_the_end(cluster: Cluster) -> None:
    version = version_of(cluster)
    query: dict[str, Any] = {
        "resourceVersion": version,
        "timeoutSeconds": 2,
        "allowWatchBookmarks": "true",
    }
    with cluster.asker.open("GET", cluster.pods, None, watch="true", **query) as response:
        assert response.headers["Transfer-Encoding"] == "chunked"
        *_, last = response.read().splitlines()  # which fails unless the last chunk came
    event = json.loads(last)
    assert event["type"] == "BOOKMARK"
    assert event["object"]["metadata"].pop("resourceVersion") >= version
    assert event["object"] == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"creationTimestamp": None},
        "spec": {"containers": None},
        "status": {},
    }


def test_too_old_a_version_is_an_event(cluster: Cluster) -> None:
    [event] = all_events(cluster, resourceVersion="1")
    assert event["type"] == "ERROR"
    status = event["object"]
    assert status["message"].startswith("too old resource version: 1 (")
    assert status | {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410} == status


def test_a_version_of_the_future_is_silence(cluster: Cluster) -> None:
    assert all_events(cluster, resourceVersion="99999999999", timeoutSeconds=1) == []


def test_a_pod_is_deleted_in_steps(cluster: Cluster) -> None:
    cluster.add_pod("short-lived")
    version = version_of(cluster)
    with cluster.asker.watching(cluster.pods, resourceVersion=version, **ON_NODE) as events:
        assert cluster.ask("DELETE", "{pods}/short-lived").status == 200
        marked = next(events)["object"]["metadata"]
        assert marked["deletionGracePeriodSeconds"] == 30
        assert marked["deletionTimestamp"]
        cluster.ask("DELETE", "{pods}/short-lived", gracePeriodSeconds=0)
        forced, gone = next(events), next(events)
    assert (forced["type"], forced["object"]["metadata"]["deletionGracePeriodSeconds"]) == ("MODIFIED", 0)
    assert gone["type"] == "DELETED"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in (forced, gone)]
    assert versions[0] < versions[1], "a deletion has a version of its own"


def test_what_no_longer_matches_is_reported_as_deleted(cluster: Cluster) -> None:
    cluster.add_pod("changing")
    label = {"metadata": {"labels": {"colour": "red"}}}
    cluster.ask("PATCH", "{pods}/changing", label, content_type=MERGE)
    version = version_of(cluster)
    with cluster.asker.watching(cluster.pods, resourceVersion=version, labelSelector="colour=red") as events:
        label = {"metadata": {"labels": {"colour": "blue"}}}
        changed = cluster.ask("PATCH", "{pods}/changing", label, content_type=MERGE).body
        event = next(events)
    assert event["type"] == "DELETED"
    assert event["object"]["metadata"]["labels"] == {"colour": "red"}, "as it was when it matched"
    assert event["object"]["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
    cluster.ask("DELETE", "{pods}/changing", gracePeriodSeconds=0)


def test_a_streaming_list_is_served_or_refused_in_the_stream(cluster: Cluster) -> None:
    events = all_events(cluster, timeoutSeconds=1, **STREAMING_LIST)
    if cluster.api is not None or events[0]["type"] == "ERROR":
        [event] = events
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == (
            "ERROR",
            500,
            "InternalError",
        )
        return
    assert [event["type"] for event in events[:3]] == ["ADDED"] * 3


def test_a_storage_that_can_streams_a_list(tmp_path: Path) -> None:
    with double(tmp_path, streaming_lists=True) as cluster:
        events = all_events(cluster, timeoutSeconds=1, **STREAMING_LIST)
    assert [event["type"] for event in events] == ["ADDED"] * 3 + ["BOOKMARK"] * 2
    assert events[3]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


def test_a_watch_continues_where_a_list_ended(cluster: Cluster) -> None:
    listed = cluster.ask("GET", "{pods}").body["metadata"]["resourceVersion"]
    cluster.add_pod("after-the-list")
    with cluster.asker.watching(cluster.pods, resourceVersion=listed) as events:
        event = next(events)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "after-the-list")
    cluster.ask("DELETE", "{pods}/after-the-list", gracePeriodSeconds=0)


def test_history_is_bounded_and_what_is_past_is_410(tmp_path: Path) -> None:
    with double(tmp_path, history=8) as cluster:
        assert cluster.api is not None
        page = cluster.ask("GET", "{pods}", limit=1).body
        version = page["metadata"]["resourceVersion"]
        cluster.api.churn("pods", 9, per_second=1e6)
        [event] = all_events(cluster, resourceVersion=version)
        assert event["object"]["code"] == 410
        expired = cluster.ask("GET", "{pods}", limit=1, **{"continue": page["metadata"]["continue"]})
        assert (expired.status, expired.body["reason"]) == (410, "Expired")
        fresh = expired.body["metadata"]["continue"]
        rest = cluster.ask("GET", "{pods}", **{"continue": fresh}).body
        assert [item["metadata"]["name"] for item in rest["items"]] == ["p1", "p2"]
        assert rest["metadata"]["resourceVersion"] > version, "the rest is of another moment"


def test_metadata_alone_can_be_asked_for(cluster: Cluster) -> None:
    kinds = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
    asker = Asker(*cluster.asker.address, cluster.asker.context, cluster.asker.token, accept=kinds)
    listed = asker.ask("GET", cluster.pods).body
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert all(item.keys() == {"kind", "apiVersion", "metadata"} for item in listed["items"])
    asker = Asker(
        *cluster.asker.address, cluster.asker.context, cluster.asker.token, accept=kinds.replace("List;", ";")
    )
    with asker.watching(cluster.pods, timeoutSeconds=1) as events:
        event = next(events)
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert event["object"].keys() == {"kind", "apiVersion", "metadata"}
