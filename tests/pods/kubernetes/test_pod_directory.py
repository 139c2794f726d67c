"""What is known of pods and namespaces, from pages and changes as they come."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nvshare.pods.kubernetes.bad_values import BAD_VALUES_KEPT
from nvshare.pods.kubernetes.limit_annotations import NOTHING, Stated
from nvshare.pods.kubernetes.objects import Annotated, OwnerReference
from nvshare.pods.kubernetes.pod_directory import (
    PODS_MAX,
    Change,
    Complaint,
    NamespaceTerms,
    PodChanged,
    PodDirectory,
    PodForgotten,
)
from nvshare.pods.kubernetes.reflection import ADDED, DELETED, MODIFIED, Changed, Listed

UID = "0d4a5b6c-1111-2222-3333-444455556666"
OTHER = "ffffffff-1111-2222-3333-444455556666"
HASH = "0123456789abcdef0123456789abcdef"
GIB = 1 << 30


def thing(name: str, uid: str = UID, namespace: str = "ml", **annotations: str) -> Annotated:
    """As the API server sends it; of annotations only what stands behind our prefix is given."""
    named = {
        key if "/" in key else f"nvshare.com/gpu-{key.replace('_', '-')}": value
        for key, value in annotations.items()
    }
    metadata: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": "1"}
    raw = msgspec.json.encode({"metadata": {**metadata, "annotations": {**named, "other": "kept by nobody"}}})
    return msgspec.json.decode(raw, type=Annotated)


def mirror(name: str, api_uid: str, of: str, node: str = "", **annotations: str) -> Annotated:
    """``node``: whose kubelet made it, as it says itself."""
    made = thing(name, api_uid, "kube-system", **{"kubernetes.io/config.mirror": of}, **annotations)
    owners = [OwnerReference("Node", node)] if node else None
    return Annotated(msgspec.structs.replace(made.metadata, owner_references=owners))


def pods_take(directory: PodDirectory, news: Listed[Annotated] | Changed[Annotated]) -> list[Change]:
    return [change for change in directory.take_pods(news) if change is not None]


def namespaces_take(directory: PodDirectory, news: Listed[Annotated] | Changed[Annotated]) -> list[Change]:
    return [change for change in directory.take_namespaces(news) if change is not None]


def listed(directory: PodDirectory, *pods: Annotated) -> list[Change]:
    return pods_take(directory, Listed(list(pods), True, True))


def changed(directory: PodDirectory, kind: str, pod: Annotated) -> list[Change]:
    return pods_take(directory, Changed(kind, pod))


def test_a_pod_comes_changes_and_goes() -> None:
    directory = PodDirectory()
    train = thing("train", core_limit="30", memory_limit="4Gi", core_policy="share")
    [came] = listed(directory, train)
    assert isinstance(came, PodChanged)
    assert came.pod.stated == Stated(4 * GIB, 30, True)
    assert directory.find("ml", "train") is directory.get(UID)
    assert (
        changed(directory, MODIFIED, thing("train", core_limit="30", memory_limit="4Gi", core_policy="share"))
        == []
    )
    [moved] = changed(directory, MODIFIED, thing("train", core_limit="80"))
    assert isinstance(moved, PodChanged)
    assert moved.pod.stated == Stated(None, 80, None), "a removed annotation says nothing"
    [gone] = changed(directory, DELETED, thing("train", core_limit="80"))
    assert isinstance(gone, PodChanged)
    assert (gone.pod.gone, gone.pod.stated, gone.pod.name) == (True, Stated(None, 80, None), "train")
    assert len(directory) == 0
    assert directory.find("ml", "train") is directory.get(UID), "others of its processes may still come"
    directory.forget(UID)
    assert directory.get(UID) is None
    assert directory.find("ml", "train") is None


def test_a_list_ends_what_it_does_not_name_with_its_last_page() -> None:
    directory = PodDirectory()
    listed(directory, thing("one"), thing("two", OTHER))
    first, last = Listed([thing("one")], True, False), Listed[Annotated]([], False, True)
    assert pods_take(directory, first) == []
    assert len(directory) == 2
    [gone] = pods_take(directory, last)
    assert isinstance(gone, PodChanged)
    assert (gone.pod.name, gone.pod.gone) == ("two", True)


def test_a_list_that_is_begun_again_counts_from_its_first_page() -> None:
    directory = PodDirectory()
    listed(directory, thing("one"), thing("two", OTHER))
    pods_take(directory, Listed([thing("one")], True, False))
    assert [c.pod.name for c in listed(directory, thing("two", OTHER)) if isinstance(c, PodChanged)] == [
        "one"
    ]


def test_a_pod_made_again_under_the_same_name_is_another() -> None:
    directory = PodDirectory()
    listed(directory, thing("db-0", core_limit="30"))
    changed(directory, DELETED, thing("db-0", core_limit="30"))
    changed(directory, ADDED, thing("db-0", OTHER))
    new, old = directory.get(OTHER), directory.get(UID)
    assert new is not None
    assert old is not None
    assert (new.stated, old.gone) == (NOTHING, True)
    assert directory.find("ml", "db-0") is new


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        ("memory_limit", "4X"),
        ("memory_limit", "0"),
        ("memory_limit", "4"),
        ("memory_limit", ""),
        ("core_limit", "0"),
        ("core_limit", "101"),
        ("core_limit", "fast"),
        ("core_limit", "1e1"),
        ("core_policy", "fast"),
    ],
)
def test_a_bad_value_leaves_the_last_good_one_and_is_told_once(annotation: str, value: str) -> None:
    directory = PodDirectory()
    good = {"memory_limit": "4Gi", "core_limit": "30", "core_policy": "cap"}
    listed(directory, thing("train", **good))
    [complaint] = changed(directory, MODIFIED, thing("train", **{**good, annotation: value}))
    assert isinstance(complaint, Complaint)
    assert complaint.pod is not None
    assert complaint.bad.annotation == f"nvshare.com/gpu-{annotation.replace('_', '-')}"
    assert complaint.bad.value == value
    assert "accepted: " in complaint.bad.why
    assert complaint.pod.stated == Stated(4 * GIB, 30, False)
    assert changed(directory, MODIFIED, thing("train", **{**good, annotation: value})) == []
    [again] = changed(directory, MODIFIED, thing("train", **{**good, annotation: "worse"}))
    assert isinstance(again, Complaint)
    changed(directory, MODIFIED, thing("train", **good))
    assert changed(directory, MODIFIED, thing("train", **{**good, annotation: value})) == [], "told before"


def test_of_bad_values_the_last_few_are_remembered() -> None:
    directory = PodDirectory()
    listed(directory, thing("train"))
    told = [
        len(changed(directory, MODIFIED, thing("train", core_limit=f"bad {number % (BAD_VALUES_KEPT + 1)}")))
        for number in range(2 * BAD_VALUES_KEPT)
    ]
    assert told == [1] * 2 * BAD_VALUES_KEPT, "one more than are remembered"
    told = [
        len(changed(directory, MODIFIED, thing("train", core_limit=f"worse {number % BAD_VALUES_KEPT}")))
        for number in range(2 * BAD_VALUES_KEPT)
    ]
    assert told == [1] * BAD_VALUES_KEPT + [0] * BAD_VALUES_KEPT


def test_a_bad_value_without_a_good_one_before_says_nothing() -> None:
    directory = PodDirectory()
    came, complaint = listed(directory, thing("train", core_limit="fast"))
    assert isinstance(came, PodChanged)
    assert came.pod.stated == NOTHING
    assert isinstance(complaint, Complaint)


def test_a_static_pod_has_the_uid_of_its_cgroups() -> None:
    directory = PodDirectory()
    listed(directory, mirror("proxy-n1", UID, HASH))
    pod = directory.get(HASH)
    assert pod is not None
    assert (pod.name, pod.api_uid) == ("proxy-n1", UID)
    assert directory.get(UID) is None
    changed(directory, DELETED, mirror("proxy-n1", UID, HASH))
    changed(directory, ADDED, mirror("proxy-n1", OTHER, HASH))
    again = directory.get(HASH)
    assert again is not None
    assert (again.gone, again.api_uid) == (False, OTHER)


def test_a_mirror_that_was_replaced_unseen_is_found_by_a_list() -> None:
    directory = PodDirectory()
    listed(directory, mirror("proxy-n1", UID, HASH))
    listed(directory, mirror("proxy-n1", OTHER, HASH))
    pod = directory.get(HASH)
    assert pod is not None
    assert (pod.gone, pod.api_uid) == (False, OTHER)


def test_nobody_passes_for_another_pod_by_an_annotation() -> None:
    directory = PodDirectory()
    listed(directory, thing("victim", core_limit="10"), mirror("proxy-n1", HASH[:8] + UID[8:], HASH))
    before = directory.get(UID), directory.get(HASH)
    changed(directory, ADDED, mirror("liar", OTHER, UID))
    changed(directory, ADDED, mirror("liar", OTHER, HASH))
    assert (directory.get(UID), directory.get(HASH)) == before
    assert directory.find("kube-system", "liar") is None
    changed(directory, DELETED, mirror("liar", OTHER, HASH))
    assert (directory.get(UID), directory.get(HASH)) == before


def name_of_static_pod(directory: PodDirectory) -> str:
    pod = directory.get(HASH)
    return "" if pod is None or pod.gone else pod.name


def node_directory() -> PodDirectory:
    directory = PodDirectory()
    directory.node_name = "n1"
    return directory


def test_a_static_pod_is_the_mirror_that_belongs_to_the_node_whoever_came_first() -> None:
    directory = node_directory()
    changed(directory, ADDED, mirror("liar", UID, HASH, core_limit="100"))
    assert name_of_static_pod(directory) == "liar"
    changed(directory, ADDED, mirror("other", "0" * 8 + UID[8:], HASH, node="elsewhere"))
    assert name_of_static_pod(directory) == "liar"
    changed(directory, ADDED, mirror("proxy-n1", OTHER, HASH, node="n1", core_limit="30"))
    pod = directory.get(HASH)
    assert pod is not None
    assert (pod.name, pod.stated.core_percent) == ("proxy-n1", 30)
    changed(directory, MODIFIED, mirror("liar", UID, HASH, core_limit="90"))
    assert name_of_static_pod(directory) == "proxy-n1"
    changed(directory, DELETED, mirror("proxy-n1", OTHER, HASH, node="n1", core_limit="30"))
    pod = directory.get(HASH)
    assert pod is not None
    assert (pod.gone, pod.stated.core_percent) == (True, 30), "nobody inherits it from the node"


def test_a_claimant_that_was_refused_takes_over_when_the_holder_goes() -> None:
    directory = node_directory()
    for name, uid in (("first", UID), ("second", OTHER)):
        changed(directory, ADDED, mirror(name, uid, HASH))
    assert name_of_static_pod(directory) == "first"
    changed(directory, DELETED, mirror("first", UID, HASH))
    assert name_of_static_pod(directory) == "second"
    third = "0" * 8 + UID[8:]
    changed(directory, ADDED, mirror("third", third, HASH))
    assert name_of_static_pod(directory) == "second"
    listed(directory, mirror("third", third, HASH))
    assert name_of_static_pod(directory) == "third", "the list does not name the other"


def test_claimants_are_bounded_and_never_keep_the_nodes_mirror_out() -> None:
    directory = node_directory()
    for number in range(100):
        changed(directory, ADDED, mirror(f"liar-{number}", f"{number:08}{UID[8:]}", HASH))
    changed(directory, ADDED, mirror("proxy-n1", OTHER, HASH, node="n1"))
    assert name_of_static_pod(directory) == "proxy-n1"


def uid_of(number: int) -> str:
    return f"{number:08}{UID[8:]}"


def full_directory(in_use: set[str]) -> PodDirectory:
    directory = PodDirectory(in_use.__contains__)
    listed(directory, *(thing(f"p{number}", uid_of(number), core_limit="30") for number in range(PODS_MAX)))
    return directory


def test_pods_that_are_gone_and_not_in_use_give_way() -> None:
    directory = full_directory({uid_of(0)})
    for number in (0, 1):
        changed(directory, DELETED, thing(f"p{number}", uid_of(number)))
    forgotten, came = changed(directory, ADDED, thing("new", UID, core_limit="20"))
    assert isinstance(forgotten, PodForgotten)
    assert forgotten.pod.name == "p1", "the other one has processes"
    assert isinstance(came, PodChanged)
    assert came.pod.stated.core_percent == 20
    assert directory.overlooked == 0


def test_what_is_overlooked_is_counted_until_a_list_finds_room_for_it() -> None:
    directory = full_directory(set())
    assert changed(directory, ADDED, thing("new", UID, core_limit="20")) == []
    assert (directory.overlooked, directory.incomplete, directory.could_complete()) == (1, {"pods"}, [])
    changed(directory, DELETED, thing("p0", uid_of(0)))
    assert directory.could_complete() == ["pods"]
    listed(directory, *(thing(f"p{number}", uid_of(number)) for number in range(1, PODS_MAX)), thing("new"))
    assert directory.get(UID) is not None
    assert (directory.overlooked, directory.incomplete, directory.could_complete()) == (1, set(), [])


def test_a_page_of_what_is_no_pod_has_places_to_rest() -> None:
    news = Listed([Annotated()] * 1000, True, True)
    assert list(PodDirectory().take_pods(news)) == [None] * 1000


def test_a_pod_is_settled_once_its_namespace_is_seen_or_may_not_be_read() -> None:
    directory = PodDirectory()
    listed(directory, thing("train"))
    pod = directory.get(UID)
    assert pod is not None
    namespaces_take(directory, Listed([thing("other", "", "")], True, False))
    assert not directory.is_settled(pod)
    assert namespaces_take(directory, Listed([thing("ml", "", "")], False, True)) == [PodChanged(pod)]
    assert directory.is_settled(pod)
    directory = PodDirectory()
    listed(directory, thing("train"))
    directory.namespaces_unreadable = True
    assert directory.is_settled(pod)


def test_only_pods_that_were_settled_are_after_a_restart() -> None:
    former = PodDirectory()
    listed(former, thing("train"), thing("early", OTHER, "unseen"))
    namespaces_take(former, Changed(ADDED, thing("ml", "", "")))
    namespaces_take(former, Changed(ADDED, thing("nobodys", "", "")))
    assert former.namespaces() == {"ml": NamespaceTerms()}, "others say nothing"
    directory = PodDirectory()
    directory.restore(former.pods(), former.namespaces())
    assert [directory.is_settled(pod) for pod in directory.pods()] == [True, False]


def test_what_has_no_uid_is_no_pod() -> None:
    directory = PodDirectory()
    assert listed(directory, thing("odd", ""), thing("odd", "../../etc")) == []


def test_defaults_of_the_namespace_count_before_those_of_the_cluster() -> None:
    directory = PodDirectory()
    directory.default = Stated(GIB, 50)
    listed(directory, thing("train"))
    pod = directory.get(UID)
    assert pod is not None
    assert directory.terms_of(pod) == NamespaceTerms(Stated(GIB, 50), NOTHING)
    terms = thing("ml", "", "", core_limit="20", core_limit_max="60", memory_limit_max="8Gi")
    assert not directory.is_settled(pod)
    [change] = namespaces_take(directory, Changed(ADDED, terms))
    assert directory.is_settled(pod)
    assert change == PodChanged(pod), "its pods have to hear of it"
    assert directory.terms_of(pod) == NamespaceTerms(Stated(GIB, 20), Stated(8 * GIB, 60))
    bad = thing("ml", "", "", core_limit="20", core_limit_max="600", memory_limit_max="8Gi")
    [complaint] = namespaces_take(directory, Changed(MODIFIED, bad))
    assert isinstance(complaint, Complaint)
    assert complaint.pod is None
    assert directory.terms_of(pod).ceiling == Stated(8 * GIB, 60)
    [change] = namespaces_take(directory, Listed([], True, True))
    assert change == PodChanged(pod)
    assert directory.terms_of(pod) == NamespaceTerms(Stated(GIB, 50), NOTHING)
    assert directory.terms_of(None).default == Stated(GIB, 50), "of a pod that is not known"


def test_what_was_known_is_known_again_and_a_list_corrects_it() -> None:
    former = PodDirectory()
    listed(former, thing("one", core_limit="30"), thing("two", OTHER, core_limit="40"))
    namespaces_take(former, Changed(ADDED, thing("ml", "", "", core_limit_max="60")))
    directory = PodDirectory()
    directory.restore(former.pods(), former.namespaces())
    assert directory.pods() == former.pods()
    assert directory.terms_of(directory.get(UID)).ceiling.core_percent == 60
    [gone] = listed(directory, thing("one", core_limit="30"))
    assert isinstance(gone, PodChanged)
    assert gone.pod.name == "two"
