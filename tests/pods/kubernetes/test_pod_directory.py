"""What is known of pods and namespaces, from pages and changes as they come."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nvshare.pods.kubernetes.limit_annotations import NOTHING, Stated
from nvshare.pods.kubernetes.objects import Annotated
from nvshare.pods.kubernetes.pod_directory import Change, Complaint, NamespaceTerms, PodChanged, PodDirectory
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


def mirror(name: str, api_uid: str, of: str) -> Annotated:
    return thing(name, api_uid, "kube-system", **{"kubernetes.io/config.mirror": of})


def listed(directory: PodDirectory, *pods: Annotated) -> list[Change]:
    return list(directory.take_pods(Listed(list(pods), True, True)))


def changed(directory: PodDirectory, kind: str, pod: Annotated) -> list[Change]:
    return list(directory.take_pods(Changed(kind, pod)))


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
    assert (gone.pod.gone, gone.pod.stated, gone.pod.name) == (True, NOTHING, "train")
    assert len(directory) == 0
    directory.forget(lambda _uid: True)
    assert directory.get(UID) is not None, "its totals are still shown"
    directory.forget(lambda _uid: False)
    assert directory.get(UID) is None
    assert directory.find("ml", "train") is None


def test_a_list_ends_what_it_does_not_name_with_its_last_page() -> None:
    directory = PodDirectory()
    listed(directory, thing("one"), thing("two", OTHER))
    first, last = Listed([thing("one")], True, False), Listed[Annotated]([], False, True)
    assert list(directory.take_pods(first)) == []
    assert len(directory) == 2
    [gone] = directory.take_pods(last)
    assert isinstance(gone, PodChanged)
    assert (gone.pod.name, gone.pod.gone) == ("two", True)


def test_a_list_that_is_begun_again_counts_from_its_first_page() -> None:
    directory = PodDirectory()
    listed(directory, thing("one"), thing("two", OTHER))
    list(directory.take_pods(Listed([thing("one")], True, False)))
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
    [told] = changed(directory, MODIFIED, thing("train", **{**good, annotation: value}))
    assert isinstance(told, Complaint), "it was good in between"


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
    [change] = directory.take_namespaces(Changed(ADDED, terms))
    assert change == PodChanged(pod), "its pods have to hear of it"
    assert directory.terms_of(pod) == NamespaceTerms(Stated(GIB, 20), Stated(8 * GIB, 60))
    bad = thing("ml", "", "", core_limit="20", core_limit_max="600", memory_limit_max="8Gi")
    [complaint] = directory.take_namespaces(Changed(MODIFIED, bad))
    assert isinstance(complaint, Complaint)
    assert complaint.pod is None
    assert directory.terms_of(pod).ceiling == Stated(8 * GIB, 60)
    [change] = directory.take_namespaces(Listed([], True, True))
    assert change == PodChanged(pod)
    assert directory.terms_of(pod) == NamespaceTerms(Stated(GIB, 50), NOTHING)
    assert directory.terms_of(None).default == Stated(GIB, 50), "of a pod that is not known"


def test_what_was_known_is_known_again_and_a_list_corrects_it() -> None:
    former = PodDirectory()
    listed(former, thing("one", core_limit="30"), thing("two", OTHER, core_limit="40"))
    list(former.take_namespaces(Changed(ADDED, thing("ml", "", "", core_limit_max="60"))))
    directory = PodDirectory()
    directory.restore(former.pods(), former.namespaces())
    assert directory.pods() == former.pods()
    assert directory.terms_of(directory.get(UID)).ceiling.core_percent == 60
    [gone] = listed(directory, thing("one", core_limit="30"))
    assert isinstance(gone, PodChanged)
    assert gone.pod.name == "two"
