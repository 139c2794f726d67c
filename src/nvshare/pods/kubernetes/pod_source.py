"""The pods of this node and the cluster's namespaces, as the API server knows them.

1. Namespaces are watched only for their defaults and ceilings. Where that is not permitted, there are none.
2. Most changes of a pod are changes of its status, which is nothing to us: they end in the thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.list_watch import Timing
from nvshare.pods.kubernetes.objects import Annotated, LimitAnnotations
from nvshare.pods.kubernetes.reflection import DELETED, Changed, Listed, SourceFigures
from nvshare.pods.kubernetes.reflector import Reflector
from nvshare.pods.kubernetes.warning_events import Warned, WarningEvents

PODS: Final = "kubernetes"
NAMESPACES: Final = "kubernetes-namespaces"


class News(NamedTuple):
    """What a reflector reports; ``source`` is the name of its source."""

    source: str
    report: Listed[Annotated] | Changed[Annotated]


class _Unchanged:
    """Keeps back what has not changed as far as it is kept (rule 2)."""

    def __init__(self, deliver: Callable[[Listed[Annotated] | Changed[Annotated]], None]) -> None:
        self._deliver = deliver
        self._last: dict[tuple[str, str], tuple[str, LimitAnnotations | None]] = {}

    def take(self, report: Listed[Annotated] | Changed[Annotated]) -> None:
        if isinstance(report, Listed):
            if report.first:
                self._last.clear()
            self._last.update(map(_kept, report.objects))
        else:
            name, kept = _kept(report.object)
            if report.kind == DELETED:
                self._last.pop(name, None)
            elif self._last.get(name) == kept:
                return
            else:
                self._last[name] = kept
        self._deliver(report)


def _kept(one: Annotated) -> tuple[tuple[str, str], tuple[str, LimitAnnotations | None]]:
    meta = one.metadata
    return (meta.namespace, meta.name), (meta.uid, meta.annotations)


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
            PODS: ("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node_name}"}),
            NAMESPACES: ("/api/v1/namespaces", {}),
        }
        for source, (path, selector) in kinds.items():
            news_only = _Unchanged(lambda report, source=source: deliver(News(source, report)))  # type: ignore[misc]
            self._reflectors[source] = Reflector(
                path.rpartition("/")[2],
                path,
                selector,
                Annotated,
                credentials,
                news_only.take,
                lambda source=source: changed(source),  # type: ignore[misc]
                timing,
            )

    def start(self) -> None:
        for reflector in self._reflectors.values():
            reflector.start()
        self._events.start()

    def close(self) -> None:
        for reflector in self._reflectors.values():
            reflector.close()
        self._events.close()

    def figures(self, now_ns: int) -> Mapping[str, SourceFigures]:
        return {source: reflector.figures(now_ns) for source, reflector in self._reflectors.items()}

    def warn(self, warned: Warned) -> None:
        """Put a Warning event on a pod, if that is permitted. Returns at once."""
        self._events.put(warned)

    def warnings(self) -> dict[str, int]:
        """How many there were, by what became of them."""
        return self._events.results()
