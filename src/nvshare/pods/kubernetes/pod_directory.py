"""What is known of the pods of this node, and of their namespaces. Pure.

1. A pod is known by the UID that its cgroups have. That is its UID in the API, except for a static pod: the
   API server has a mirror of it under another UID, with the real one, a hash without dashes, in an
   annotation. A user can write that annotation too, so only such hashes are believed, and of all that claim
   one the first that belongs to this node, as mirrors do that the kubelet makes. Without one, the first that
   came has it. Others are remembered, and the next one has it when that one is gone, but nothing else has
   it any more once one of the node's had it.
2. A pod that was deleted is gone. Its processes may outlast it, and others of its cgroup may still come, so
   what it may use stays known with its name until somebody forgets it. A pod made again under the same name
   has another UID, so it is another pod.
3. A list tells all that exists. What it does not name is gone, but not before its last page has come.
4. A namespace's annotations of the same names are the defaults of its pods; they count before the cluster's
   defaults, which are settings. Others are ceilings. A pod is settled when its namespace is known as well.
   Where namespaces may not be read, they have neither defaults nor ceilings.
5. A bad value is reported once (``bad_values``).
6. There is room for so many pods and namespaces. Pods that are gone and not in use give way, the first that
   went first. What is overlooked for lack of room is counted, and a new list is needed to find it.
7. ``None`` among the changes is a place to rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

from nvshare.pods.kubernetes.bad_values import BadValues, Told, key_of_namespace
from nvshare.pods.kubernetes.limit_annotations import NOTHING, OF_CEILINGS, OF_LIMITS, BadValue, Stated, read
from nvshare.pods.kubernetes.objects import Annotated
from nvshare.pods.kubernetes.reflection import DELETED, Changed, Listed

PODS_MAX: Final = 4096
NAMESPACES_MAX: Final = 65_536
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH: Final = re.compile(r"[0-9a-f]{32}")
NAME_MAX: Final = 253
CLAIMANTS_MAX: Final = 8
"""Of the hash of a static pod."""
_LOOKED_AT: Final = 64
"""Pods that are gone, to find one that can give way."""
OF_PODS: Final = "pods"
OF_NAMESPACES: Final = "namespaces"


class KnownPod(NamedTuple):
    uid: str
    namespace: str
    name: str
    stated: Stated = NOTHING
    gone: bool = False
    api_uid: str = ""  # under which events are put on it


class NamespaceTerms(NamedTuple):
    default: Stated = NOTHING
    ceiling: Stated = NOTHING


class PodChanged(NamedTuple):
    """A pod is new, or was made gone, or its limits may have changed."""

    pod: KnownPod


class Complaint(NamedTuple):
    """A bad value. ``pod``: None if it is a namespace's."""

    pod: KnownPod | None
    namespace: str
    bad: BadValue


class PodForgotten(NamedTuple):
    """A pod that was gone has given way to others."""

    pod: KnownPod


Change = PodChanged | PodForgotten | Complaint
News = Listed[Annotated] | Changed[Annotated]
_NO_TERMS: Final = NamespaceTerms()


class PodDirectory:
    def __init__(self, in_use: Callable[[str], bool] = lambda _uid: False) -> None:
        """``in_use``: whether a pod that is gone has processes."""
        self._in_use = in_use
        self._pods: dict[str, KnownPod] = {}
        self._gone: dict[str, None] = {}  # the next to give way first
        self._names: dict[str, dict[str, list[str]]] = {}  # by namespace and name: UIDs, the latest last
        self._claimants: dict[str, dict[str, Annotated]] = {}  # by hash and UID in the API
        self._of_node: set[str] = set()  # hashes that a mirror of the node's had
        self._namespaces: dict[str, NamespaceTerms] = {}
        self._listing: dict[str, set[str]] = {}  # by kind: what the pages so far have named, if it is known
        self.bad_values = BadValues()
        self.default = NOTHING  # of the cluster
        self.node_name = ""
        self.namespaces_unreadable = False
        self.overlooked = 0  # pods and namespaces, for lack of room
        self.incomplete: set[str] = set()  # kinds of which any was overlooked since their last list began

    # ---- what is known -----------------------------------------------------------------------

    def __len__(self) -> int:
        """How many pods run on the node."""
        return len(self._pods) - len(self._gone)

    def get(self, uid: str) -> KnownPod | None:
        return self._pods.get(uid)

    def find(self, namespace: str, name: str) -> KnownPod | None:
        """The pod that has this name, or had it last."""
        uids = self._names.get(namespace, {}).get(name)
        return self._pods[uids[-1]] if uids else None

    def is_settled(self, pod: KnownPod) -> bool:
        """Rule 4: all that counts for it is known."""
        return self.namespaces_unreadable or pod.namespace in self._namespaces

    def terms_of(self, pod: KnownPod | None) -> NamespaceTerms:
        """Defaults and ceilings of a pod; only the cluster's defaults while its namespace is not known."""
        terms = self._namespaces.get(pod.namespace, _NO_TERMS) if pod is not None else _NO_TERMS
        own = {name: said for name, said in terms.default._asdict().items() if said is not None}
        return NamespaceTerms(self.default._replace(**own), terms.ceiling)

    def namespace_default(self, namespace: str) -> Stated:
        return self._namespaces.get(namespace, _NO_TERMS).default

    def bad_values_of(self, pod: KnownPod) -> dict[str, list[BadValue]]:
        """The values that do not count now, of the pod's annotations and of its namespace's."""
        namespace = self.bad_values.present(key_of_namespace(pod.namespace))
        return {"pod": self.bad_values.present(pod.uid), "namespace": namespace}

    def could_complete(self) -> list[str]:
        """Kinds of which some were overlooked, and for which there is room by now."""
        room = {
            OF_PODS: len(self._pods) < PODS_MAX or bool(self._gone),
            OF_NAMESPACES: len(self._namespaces) < NAMESPACES_MAX,
        }
        return [kind for kind in self.incomplete if room[kind]]

    def pods(self) -> list[KnownPod]:
        """Those that are gone, too."""
        return list(self._pods.values())

    def namespaces(self) -> dict[str, NamespaceTerms]:
        """Those that the checkpoint needs; see ``for_checkpoint``."""
        return for_checkpoint(self.pods(), self._namespaces, self.namespaces_unreadable)

    def copies(self) -> tuple[list[KnownPod], dict[str, NamespaceTerms], bool, Told]:
        """The arguments of ``for_checkpoint``, and of ``rows_of``. Nothing in them ever changes."""
        return self.pods(), dict(self._namespaces), self.namespaces_unreadable, self.bad_values.told()

    def restore(self, pods: Iterable[KnownPod], namespaces: dict[str, NamespaceTerms]) -> None:
        """What the previous daemon knew."""
        for pod in pods:
            self._put(pod)
        self._namespaces |= namespaces

    def forget(self, uid: str) -> None:
        """A pod that is gone."""
        pod = self._pods.pop(uid)
        del self._gone[uid]
        self._claimants.pop(uid, None)
        self._of_node.discard(uid)
        self.bad_values.forget(uid)
        self._unname(pod)

    # ---- pods --------------------------------------------------------------------------------

    def take_pods(self, news: News) -> Iterator[Change | None]:
        if isinstance(news, Changed):
            take = self._pod_deleted if news.kind == DELETED else self._take_pod
            yield from take(news.object)
            return
        named = self._listed(OF_PODS, news)
        for one in news.objects:
            yield from self._take_pod(one)
            if self._knows(one):
                named.add(one.metadata.uid)
            yield None
        if news.last:
            yield from self._list_ended(named)

    def _take_pod(self, pod: Annotated) -> Iterator[Change | None]:
        uid = _uid_of(pod)
        if not uid:
            return
        if uid not in self._pods and len(self._pods) >= PODS_MAX:
            yield from self._make_room()
            if len(self._pods) >= PODS_MAX:
                self._overlook(OF_PODS)
                return
        if _is_mirror(pod):
            self._claim(uid, pod)
            yield from self._choose(uid)
        else:
            yield from self._become(uid, pod)

    def _become(self, uid: str, pod: Annotated) -> Iterator[Change]:
        """The pod with this UID is as this object says."""
        meta, before = pod.metadata, self._pods.get(uid)
        same = before is not None and before.api_uid in ("", meta.uid)
        stated, bad = read(OF_LIMITS, meta.annotations, before.stated if before and same else NOTHING)
        now = KnownPod(uid, meta.namespace, meta.name, stated, False, meta.uid)
        if now != before:
            self._put(now)
            yield PodChanged(now)
        yield from self._complain(uid, bad, now, meta.namespace)

    def _pod_deleted(self, pod: Annotated) -> Iterator[Change]:
        return self._release(_uid_of(pod), pod.metadata.uid)

    def _release(self, uid: str, api_uid: str) -> Iterator[Change]:
        """The pod that has this UID in the API does not exist any more."""
        claimants = self._claimants.get(uid, {})
        claimants.pop(api_uid, None)
        pod = self._pods.get(uid)
        if pod is None or pod.gone or pod.api_uid not in ("", api_uid):
            return
        now = pod._replace(gone=True)
        self._put(now)
        yield PodChanged(now)
        if claimants:
            yield from self._choose(uid)

    def _list_ended(self, named: set[str]) -> Iterator[Change | None]:
        """Rule 3."""
        for claimants in list(self._claimants.values()):
            for api_uid in [one for one in claimants if one not in named]:
                del claimants[api_uid]
            yield None
        for pod in self.pods():
            if not pod.gone and pod.api_uid not in named:
                yield from self._release(pod.uid, pod.api_uid)
            yield None

    def _knows(self, pod: Annotated) -> bool:
        uid, api_uid = _uid_of(pod), pod.metadata.uid
        known = self._pods.get(uid)
        return (known is not None and known.api_uid == api_uid) or api_uid in self._claimants.get(uid, ())

    def _claim(self, uid: str, mirror: Annotated) -> None:
        """Rule 1."""
        claimants, api_uid = self._claimants.setdefault(uid, {}), mirror.metadata.uid
        if self._is_of_node(mirror):
            self._of_node.add(uid)
            others = [one for one, claim in claimants.items() if not self._is_of_node(claim)]
            if len(claimants) >= CLAIMANTS_MAX and others:
                del claimants[others[0]]
        if api_uid in claimants or len(claimants) < CLAIMANTS_MAX:
            claimants[api_uid] = mirror

    def _choose(self, uid: str) -> Iterator[Change]:
        """The pod is as the best of its claimants says (rule 1)."""
        claimants, holder = self._claimants.get(uid, {}), self._pods.get(uid)
        found = {
            api_uid: mirror
            for api_uid, mirror in claimants.items()
            if uid not in self._of_node or self._is_of_node(mirror)
        }
        if holder is not None and not holder.gone:
            if holder.api_uid in found:
                found = {holder.api_uid: found[holder.api_uid]}
            elif uid not in self._of_node:
                return  # the previous daemon knew it, and it has not been listed yet
        if found:
            yield from self._become(uid, next(iter(found.values())))

    def _is_of_node(self, mirror: Annotated) -> bool:
        return mirror.metadata.belongs_to_node(self.node_name)

    # ---- namespaces --------------------------------------------------------------------------

    def take_namespaces(self, news: News) -> Iterator[Change | None]:
        self.namespaces_unreadable = False
        if isinstance(news, Changed):
            take = self._namespace_deleted if news.kind == DELETED else self._take_namespace
            yield from take(news.object)
            return
        named = self._listed(OF_NAMESPACES, news)
        for one in news.objects:
            yield from self._take_namespace(one)
            if one.metadata.name in self._namespaces:
                named.add(one.metadata.name)
            yield None
        if news.last:
            for name in list(self._namespaces):
                if name not in named:
                    yield from self._namespace_gone(name)
                yield None

    def _take_namespace(self, namespace: Annotated) -> Iterator[Change | None]:
        name, annotations = namespace.metadata.name, namespace.metadata.annotations
        if not name:
            return
        before = self._namespaces.get(name)
        if before is None and len(self._namespaces) >= NAMESPACES_MAX:
            self._overlook(OF_NAMESPACES)
            return
        former = before or _NO_TERMS
        default, bad = read(OF_LIMITS, annotations, former.default)
        ceiling, bad_ceiling = read(OF_CEILINGS, annotations, former.ceiling)
        terms = NamespaceTerms(default, ceiling)
        if terms != before:
            self._namespaces[name] = _NO_TERMS if terms == _NO_TERMS else terms
            yield from self._pods_changed(name)
        yield from self._complain(key_of_namespace(name), bad + bad_ceiling, None, name)

    def _namespace_deleted(self, namespace: Annotated) -> Iterator[Change | None]:
        return self._namespace_gone(namespace.metadata.name)

    def _namespace_gone(self, name: str) -> Iterator[Change | None]:
        self.bad_values.forget(key_of_namespace(name))
        if self._namespaces.pop(name, _NO_TERMS) != _NO_TERMS:
            yield from self._pods_changed(name)

    def _pods_changed(self, namespace: str) -> Iterator[Change | None]:
        for uids in list(self._names.get(namespace, {}).values()):
            for uid in list(uids):
                if (pod := self._pods.get(uid)) is not None:
                    yield PodChanged(pod)
            yield None

    # ---- both --------------------------------------------------------------------------------

    def _listed(self, kind: str, page: Listed[Annotated]) -> set[str]:
        if page.first or kind not in self._listing:
            self._listing[kind] = set()
            self.incomplete.discard(kind)
        return self._listing.pop(kind) if page.last else self._listing[kind]

    def _overlook(self, kind: str) -> None:
        self.overlooked += 1
        self.incomplete.add(kind)

    def _make_room(self) -> Iterator[Change]:
        """Rule 6."""
        for uid in list(islice(self._gone, _LOOKED_AT)):
            if self._in_use(uid):
                self._gone[uid] = self._gone.pop(uid)
                continue
            pod = self._pods[uid]
            self.forget(uid)
            yield PodForgotten(pod)
            return

    def _complain(
        self, key: str, bad: list[BadValue], pod: KnownPod | None, namespace: str
    ) -> Iterator[Change]:
        """Rule 5."""
        for one in self.bad_values.take(key, bad):
            yield Complaint(pod, namespace, one)

    def _put(self, pod: KnownPod) -> None:
        before = self._pods.get(pod.uid)
        if before is None or (before.namespace, before.name) != (pod.namespace, pod.name):
            if before is not None:
                self._unname(before)
            self._names.setdefault(pod.namespace, {}).setdefault(pod.name, []).append(pod.uid)
        self._pods[pod.uid] = pod
        self._gone.pop(pod.uid, None)
        if pod.gone:
            self._gone[pod.uid] = None

    def _unname(self, pod: KnownPod) -> None:
        names = self._names[pod.namespace]
        names[pod.name].remove(pod.uid)
        if not names[pod.name]:
            del names[pod.name]
        if not names:
            del self._names[pod.namespace]


def for_checkpoint(
    pods: Iterable[KnownPod], namespaces: Mapping[str, NamespaceTerms], unreadable: bool
) -> dict[str, NamespaceTerms]:
    """Namespaces that say anything, and those of the pods, so that the next daemon knows these as settled."""
    found = {name: terms for name, terms in namespaces.items() if terms != _NO_TERMS}
    for pod in pods:
        if unreadable or pod.namespace in namespaces:
            found.setdefault(pod.namespace, _NO_TERMS)
    return found


def _is_mirror(pod: Annotated) -> bool:
    annotations = pod.metadata.annotations
    return annotations is not None and annotations.mirror is not None


def _uid_of(pod: Annotated) -> str:
    """Of its cgroups; empty if it cannot be believed."""
    meta = pod.metadata
    mirrored = meta.annotations.mirror if meta.annotations is not None else None
    uid = mirrored if mirrored is not None else meta.uid
    pattern = _HASH if mirrored is not None else _UID
    return uid if pattern.fullmatch(uid) and meta.uid else ""
