"""What is known of the pods of this node, and of their namespaces. Pure.

1. A pod is known by the UID that its cgroups have. That is its UID in the API, except for a static pod: the
   API server has a mirror of it under another UID, with the real one, a hash without dashes, in an
   annotation. A user can write that annotation too, so only such hashes are believed, and the first pod that
   has one keeps it: nobody can pass for an ordinary pod, or for a static pod that is known already.
2. A pod that was deleted is gone: it has no limits any more. Its name is kept while its totals are shown. A
   pod made again under the same name has another UID, so it is another pod.
3. A list tells all that exists. What it does not name is gone, but not before its last page has come.
4. A namespace's annotations of the same names are the defaults of its pods; they count before the cluster's
   defaults, which are settings. Others are ceilings.
5. A bad value is reported once for each pod or namespace, annotation and value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from nvshare.pods.kubernetes.limit_annotations import NOTHING, OF_CEILINGS, OF_LIMITS, BadValue, Stated, read
from nvshare.pods.kubernetes.objects import Annotated
from nvshare.pods.kubernetes.reflection import DELETED, Changed, Listed

PODS_MAX: Final = 4096
NAMESPACES_MAX: Final = 65_536
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH: Final = re.compile(r"[0-9a-f]{32}")
NAME_MAX: Final = 253


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


class _Listing(NamedTuple):
    """What the pages of the present list have named so far, and what they named in vain."""

    named: set[str]
    doubtful: list[Annotated]


Change = PodChanged | Complaint
_NO_TERMS: Final = NamespaceTerms()


class PodDirectory:
    def __init__(self) -> None:
        self._pods: dict[str, KnownPod] = {}
        self._names: dict[tuple[str, str], list[str]] = {}  # UIDs, the latest last
        self._namespaces: dict[str, NamespaceTerms] = {}
        self._listing: dict[str, _Listing] = {}  # by kind of object
        self._complained: dict[str, dict[str, str]] = {}  # by UID or namespace, annotation: the bad value
        self.default = NOTHING  # of the cluster
        self.overlooked = 0  # pods and namespaces beyond the bounds

    # ---- what is known -----------------------------------------------------------------------

    def __len__(self) -> int:
        """How many pods run on the node."""
        return sum(not pod.gone for pod in self._pods.values())

    def get(self, uid: str) -> KnownPod | None:
        return self._pods.get(uid)

    def find(self, namespace: str, name: str) -> KnownPod | None:
        """The pod that has this name, or had it last."""
        uids = self._names.get((namespace, name))
        return self._pods[uids[-1]] if uids else None

    def terms_of(self, pod: KnownPod | None) -> NamespaceTerms:
        """Defaults and ceilings of a pod; only the cluster's defaults while its namespace is not known."""
        terms = self._namespaces.get(pod.namespace, _NO_TERMS) if pod is not None else _NO_TERMS
        own = {name: said for name, said in terms.default._asdict().items() if said is not None}
        return NamespaceTerms(self.default._replace(**own), terms.ceiling)

    def pods(self) -> list[KnownPod]:
        """For the checkpoint; those that are gone, too."""
        return list(self._pods.values())

    def namespaces(self) -> dict[str, NamespaceTerms]:
        """For the checkpoint: those that say anything."""
        return dict(self._namespaces)

    def restore(self, pods: Iterable[KnownPod], namespaces: dict[str, NamespaceTerms]) -> None:
        """What the previous daemon knew."""
        for pod in pods:
            self._put(pod)
        self._namespaces |= namespaces

    # ---- what comes --------------------------------------------------------------------------

    def take_pods(self, news: Listed[Annotated] | Changed[Annotated]) -> Iterator[Change]:
        return self._take("pods", news, self._pod_uid, self._take_pod, self._pod_gone, self._present)

    def take_namespaces(self, news: Listed[Annotated] | Changed[Annotated]) -> Iterator[Change]:
        return self._take(
            "namespaces",
            news,
            _namespace_name,
            self._take_namespace,
            self._namespace_gone,
            lambda: list(self._namespaces),
        )

    def forget(self, is_shown: Callable[[str], bool]) -> list[str]:
        """Pods that are gone and not shown any more."""
        forgotten = [uid for uid, pod in self._pods.items() if pod.gone and not is_shown(uid)]
        for uid in forgotten:
            self._unname(self._pods.pop(uid))
        return forgotten

    # ---- inside ------------------------------------------------------------------------------

    def _present(self) -> list[str]:
        return [uid for uid, pod in self._pods.items() if not pod.gone]

    def _take(
        self,
        kind: str,
        news: Listed[Annotated] | Changed[Annotated],
        key_of: Callable[[Annotated], str],
        take: Callable[[str, Annotated], Iterator[Change]],
        gone: Callable[[str], Iterator[Change]],
        known: Callable[[], list[str]],
    ) -> Iterator[Change]:
        if isinstance(news, Changed):
            key = key_of(news.object)
            if key:
                yield from gone(key) if news.kind == DELETED else take(key, news.object)
            return
        if news.first or kind not in self._listing:
            self._listing[kind] = _Listing(set(), [])
        named, doubtful = self._listing[kind]
        for one in news.objects:
            key = key_of(one)
            if key:
                named.add(key)
                yield from take(key, one)
            elif len(doubtful) < PODS_MAX:
                doubtful.append(one)
        if news.last:
            del self._listing[kind]
            for key in [key for key in known() if key not in named]:
                yield from gone(key)
            for one in doubtful:  # it may have replaced a mirror that has just turned out to be gone
                if key := key_of(one):
                    yield from take(key, one)

    def _pod_uid(self, pod: Annotated) -> str:
        """Rule 1; empty if it cannot be believed."""
        meta = pod.metadata
        mirrored = meta.annotations.mirror if meta.annotations is not None else None
        uid = mirrored if mirrored is not None else meta.uid
        pattern = _HASH if mirrored is not None else _UID
        if not pattern.fullmatch(uid) or len(meta.name) > NAME_MAX or len(meta.namespace) > NAME_MAX:
            return ""
        known = self._pods.get(uid)
        if known is not None and known.api_uid not in ("", meta.uid) and not known.gone:
            return ""
        return uid

    def _take_pod(self, uid: str, pod: Annotated) -> Iterator[Change]:
        meta, before = pod.metadata, self._pods.get(uid)
        if before is None and len(self._pods) >= PODS_MAX:
            self.overlooked += 1
            return
        said = before.stated if before is not None else NOTHING
        stated, bad = read(OF_LIMITS, meta.annotations, said)
        now = KnownPod(uid, meta.namespace, meta.name, stated, False, meta.uid)
        if now != before:
            self._put(now)
            yield PodChanged(now)
        yield from self._complain(uid, bad, now, meta.namespace)

    def _pod_gone(self, uid: str) -> Iterator[Change]:
        pod = self._pods.get(uid)
        self._complained.pop(uid, None)
        if pod is not None and not pod.gone:
            now = self._pods[uid] = pod._replace(stated=NOTHING, gone=True)
            yield PodChanged(now)

    def _take_namespace(self, name: str, namespace: Annotated) -> Iterator[Change]:
        annotations = namespace.metadata.annotations
        before = self._namespaces.get(name, _NO_TERMS)
        default, bad = read(OF_LIMITS, annotations, before.default)
        ceiling, bad_ceiling = read(OF_CEILINGS, annotations, before.ceiling)
        yield from self._set_terms(name, NamespaceTerms(default, ceiling))
        yield from self._complain(f"namespace {name}", bad + bad_ceiling, None, name)

    def _namespace_gone(self, name: str) -> Iterator[Change]:
        self._complained.pop(f"namespace {name}", None)
        return self._set_terms(name, _NO_TERMS)

    def _set_terms(self, name: str, terms: NamespaceTerms) -> Iterator[Change]:
        if terms == self._namespaces.get(name, _NO_TERMS):
            return
        if terms == _NO_TERMS:
            del self._namespaces[name]
        elif name in self._namespaces or len(self._namespaces) < NAMESPACES_MAX:
            self._namespaces[name] = terms
        else:
            self.overlooked += 1
            return
        for pod in [pod for pod in self._pods.values() if pod.namespace == name]:
            yield PodChanged(pod)

    def _complain(
        self, key: str, bad: list[BadValue], pod: KnownPod | None, namespace: str
    ) -> Iterator[Change]:
        """Rule 5."""
        known = self._complained.get(key, {})
        now = {one.annotation: one.value for one in bad}
        if now:
            self._complained[key] = now
        elif known:
            del self._complained[key]
        for one in bad:
            if known.get(one.annotation) != one.value:
                yield Complaint(pod, namespace, one)

    def _put(self, pod: KnownPod) -> None:
        before = self._pods.get(pod.uid)
        if before is None or (before.namespace, before.name) != (pod.namespace, pod.name):
            if before is not None:
                self._unname(before)
            self._names.setdefault((pod.namespace, pod.name), []).append(pod.uid)
        self._pods[pod.uid] = pod

    def _unname(self, pod: KnownPod) -> None:
        uids = self._names[pod.namespace, pod.name]
        uids.remove(pod.uid)
        if not uids:
            del self._names[pod.namespace, pod.name]


def _namespace_name(namespace: Annotated) -> str:
    name = namespace.metadata.name
    return name if len(name) <= NAME_MAX else ""
