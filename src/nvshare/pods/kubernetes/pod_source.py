"""The pods of this node and the cluster's namespaces, as the API server knows them.

1. Namespaces are watched only for their defaults and ceilings. Where that is not permitted, there are none.
2. Most changes of a pod are changes of its status, which is nothing to us: they end in the thread.
3. So does what is longer than any name or value can be: of such a value the beginning is kept, for people.
4. A pod that has finished has no process any more, so it is not asked for. To us it is as good as deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import msgspec

from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.list_watch import Timing
from nvshare.pods.kubernetes.objects import Annotated, LimitAnnotations
from nvshare.pods.kubernetes.pod_directory import NAME_MAX, NAMESPACES_MAX, PODS_MAX
from nvshare.pods.kubernetes.reflection import DELETED, Changed, Listed, SourceFigures
from nvshare.pods.kubernetes.reflector import Reflector
from nvshare.pods.kubernetes.warning_events import Warned, WarningEvents

PODS: Final = "kubernetes"
NAMESPACES: Final = "kubernetes-namespaces"
VALUE_MAX: Final = 256
FORBIDDEN_SEC: Final = 30.0
"""After which namespaces are asked for again; the right may have been given."""
_RUNNING_ON: Final = "spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed"  # rule 4


class News(NamedTuple):
    """What a reflector reports; ``source`` is the name of its source."""

    source: str
    report: Listed[Annotated] | Changed[Annotated]


class Unchanged:
    """Keeps back what has not changed as far as it is kept (rule 2)."""

    def __init__(self, deliver: Callable[[Listed[Annotated] | Changed[Annotated]], None], most: int) -> None:
        """It remembers the first ``most`` objects; all changes of others are passed on."""
        self._deliver = deliver
        self._most = most
        self._last: dict[tuple[str, str], tuple[str, LimitAnnotations | None]] = {}

    def take(self, report: Listed[Annotated] | Changed[Annotated]) -> None:
        if isinstance(report, Listed):
            if report.first:
                self._last.clear()
            objects = [short for one in report.objects if (short := shortened(one)) is not None]
            for one in objects:
                self._remember(*_kept(one))
            self._deliver(report._replace(objects=objects))
            return
        changed = shortened(report.object)
        if changed is None:
            return
        name, kept = _kept(changed)
        if report.kind == DELETED:
            self._last.pop(name, None)
        elif self._last.get(name) == kept:
            return
        else:
            self._remember(name, kept)
        self._deliver(report._replace(object=changed))

    def _remember(self, name: tuple[str, str], kept: tuple[str, LimitAnnotations | None]) -> None:
        if name in self._last or len(self._last) < self._most:
            self._last[name] = kept


def _kept(one: Annotated) -> tuple[tuple[str, str], tuple[str, LimitAnnotations | None]]:
    meta = one.metadata
    return (meta.namespace, meta.name), (meta.uid, meta.annotations)


def shortened(one: Annotated) -> Annotated | None:
    """Rule 3; None if it has a name that no object can have."""
    meta = one.metadata
    if max(len(meta.name), len(meta.namespace), len(meta.uid)) > NAME_MAX:
        return None
    said = meta.annotations
    if said is not None and any(value is not None and len(value) > VALUE_MAX for value in _values(said)):
        values = {name: _cut(getattr(said, name)) for name in said.__struct_fields__}
        said = msgspec.structs.replace(said, **values)
    owners = [owner for owner in meta.owner_references or () if owner.kind == "Node"][:1]
    if said is meta.annotations and len(owners) == len(meta.owner_references or ()):
        return one
    short = msgspec.structs.replace(meta, annotations=said, owner_references=owners or None)
    return msgspec.structs.replace(one, metadata=short)


def _values(said: LimitAnnotations) -> tuple[str | None, ...]:
    return (said.memory, said.core, said.policy, said.memory_max, said.core_max, said.mirror)


def _cut(value: str | None) -> str | None:
    """What is cut is never accepted, whatever it begins with."""
    return value if value is None or len(value) <= VALUE_MAX else value[: VALUE_MAX - 1] + "…"


class PodSource:
    def __init__(
        self,
        credentials: Credentials,
        node_name: str,
        deliver: Callable[[News], None],
        changed: Callable[[str], None],
        timing: Timing = Timing(),  # noqa: B008 - immutable
    ) -> None:
        """Both are called in threads; ``changed`` with the name of a source that went up or down."""
        self._events = WarningEvents(credentials, node_name, timing)
        self._reflectors: dict[str, Reflector[Annotated]] = {}
        kinds = {
            PODS: ("/api/v1/pods", {"fieldSelector": _RUNNING_ON.format(node_name)}, PODS_MAX),
            NAMESPACES: ("/api/v1/namespaces", {}, NAMESPACES_MAX),
        }
        for source, (path, selector, most) in kinds.items():
            forbidden_sec = FORBIDDEN_SEC if source == NAMESPACES else 0.0  # rule 1
            news_only = Unchanged(
                lambda report, source=source: deliver(News(source, report)),  # type: ignore[misc]
                most,
            )
            self._reflectors[source] = Reflector(
                path.rpartition("/")[2],
                path,
                selector,
                Annotated,
                credentials,
                news_only.take,
                lambda source=source: changed(source),  # type: ignore[misc]
                timing._replace(forbidden_sec=forbidden_sec),
            )

    def start(self) -> None:
        for reflector in self._reflectors.values():
            reflector.start()
        self._events.start()

    def close(self) -> None:
        for reflector in self._reflectors.values():
            reflector.close()
        self._events.close()

    def list_again(self, source: str) -> None:
        """Everything is reported once more."""
        self._reflectors[source].list_again()

    def figures(self, now_ns: int) -> Mapping[str, SourceFigures]:
        return {source: reflector.figures(now_ns) for source, reflector in self._reflectors.items()}

    def warn(self, warned: Warned) -> None:
        """Put a Warning event on a pod, if that is permitted. Returns at once."""
        self._events.put(warned)

    def warnings(self) -> dict[str, int]:
        """How many there were, by what became of them."""
        return self._events.results()
