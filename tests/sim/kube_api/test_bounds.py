"""What bounds the double's memory, and what happens to who reaches a bound."""

from __future__ import annotations

from typing import Any

import pytest

from nvshare.sim.kube_api import watches
from nvshare.sim.kube_api.access import USERS_MAX, Access
from nvshare.sim.kube_api.errors import ApiError
from nvshare.sim.kube_api.faults import RULES_MAX, Fault, FaultBoard, Point, Rule
from nvshare.sim.kube_api.objects import TRUSTED, Objects
from nvshare.sim.kube_api.resources import EVENTS, NAMESPACES, PODS
from nvshare.sim.kube_api.samples import pod
from nvshare.sim.kube_api.store import OBJECT_BYTES_MAX, Store
from nvshare.sim.kube_api.watches import Watch


def filled(**bounds: int) -> tuple[Store, Objects]:
    store = Store(**bounds)
    objects = Objects(store)
    objects.create(NAMESPACES, "", {"metadata": {"name": "default"}}, TRUSTED)
    objects.create(PODS, "default", pod("p0"), TRUSTED)
    return store, objects


def annotated(objects: Objects, value: str) -> None:
    fields = objects.read(PODS, ("default", "p0")).fields
    metadata = {**fields["metadata"], "annotations": {"a": value}}
    objects.replace(PODS, ("default", "p0"), {**fields, "metadata": metadata}, TRUSTED)


def everything(_found: dict[str, Any]) -> bool:
    return True


def test_history_is_bounded_in_bytes() -> None:
    store, objects = filled(size_bytes=100_000)
    first = store.version
    for number in range(100):
        annotated(objects, f"{number}" * 5000)
    assert len(store.changes_after(store.compacted)) < 20
    with pytest.raises(ApiError, match="410 Expired: too old resource version"):
        store.changes_after(first)


def test_a_watch_that_nobody_reads_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "QUEUE_MAX", 10)
    store, objects = filled()
    watch = Watch(store, PODS, everything, bookmarks=False)
    watch.start(store.version)
    overflown = []
    for number in range(11):
        annotated(objects, str(number))
        overflown.append(watch.overflown)
    assert overflown == [False] * 10 + [True]
    assert watch.next_line() is None, "what it held is freed"


def test_a_former_state_is_the_present_one_with_changes_taken_back() -> None:
    store, objects = filled()
    annotated(objects, "1")
    then = store.version
    annotated(objects, "2")
    objects.create(PODS, "default", pod("p1"), TRUSTED)
    objects.delete(PODS, ("default", "p0"), TRUSTED, grace_sec=0)
    [(key, stored)] = store.all_at(PODS, then)
    assert (key, stored.fields["metadata"]["annotations"]) == (("default", "p0"), {"a": "1"})
    assert [key for key, _ in store.all(PODS)] == [("default", "p1")]


def test_the_oldest_events_go() -> None:
    store, objects = filled()
    for number in range(EVENTS.kept_max + 5):
        objects.create(EVENTS, "default", {"metadata": {"name": f"e{number:05}"}}, TRUSTED)
    kept = [key[1] for key, _ in store.all(EVENTS)]
    assert len(kept) == EVENTS.kept_max
    assert kept[0] == "e00005"


def test_an_object_may_be_so_large() -> None:
    _, objects = filled()
    given = {"metadata": {"name": "large"}, "data": "x" * OBJECT_BYTES_MAX}
    with pytest.raises(ApiError, match="413 RequestEntityTooLarge"):
        objects.create(EVENTS, "default", given, TRUSTED)


def test_there_may_be_so_many_users_and_faults() -> None:
    access, faults = Access(), FaultBoard()
    for number in range(USERS_MAX):
        access.add_user(str(number), ())
    with pytest.raises(ValueError, match=f"{USERS_MAX} users are known already"):
        access.add_user("one more", ())
    for _ in range(RULES_MAX):
        faults.add(Rule(Point.ACCEPT, Fault.DELAY))
    with pytest.raises(ValueError, match=f"{RULES_MAX} faults are in force already"):
        faults.add(Rule(Point.ACCEPT, Fault.DELAY))


def test_what_belongs_to_nobody_goes_with_its_owner() -> None:
    store, objects = filled()
    owner = objects.read(PODS, ("default", "p0")).fields["metadata"]["uid"]
    owned = {"metadata": {"name": "owned", "ownerReferences": [{"uid": owner}]}}
    shared = {"metadata": {"name": "shared", "ownerReferences": [{"uid": owner}, {"uid": "another"}]}}
    for given in (owned, shared):
        objects.create(EVENTS, "default", given, TRUSTED)
    objects.delete(PODS, ("default", "p0"), TRUSTED)
    assert [key[1] for key, _ in store.all(EVENTS)] == ["shared"]
