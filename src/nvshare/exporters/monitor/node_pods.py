"""The pods of this node from the API server, brought to the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from nvshare.exporters.kubernetes_access import KUBERNETES, told
from nvshare.exporters.monitor.pod_index import PodIndex
from nvshare.pods.kubernetes.credentials import Credentials
from nvshare.pods.kubernetes.reflection import Changed, Listed, SourceFigures
from nvshare.pods.kubernetes.whole_objects import NodePod, WholeReflector
from nvshare.runtime import logs
from nvshare.runtime.mailbox import Mailbox

News = Listed[NodePod] | Changed[NodePod]


class NodePods:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        credentials: Credentials,
        node: str,
        failed: Callable[[str, BaseException | None], None],
    ) -> None:
        self._loop = loop
        self.index = PodIndex(_complain)
        self.complete = False
        """Whether a whole list has come."""
        self._mailbox: Mailbox[News] = Mailbox(
            loop, self._take, time.perf_counter_ns, lambda _: None, lambda error: failed("pods", error)
        )
        self._reflector = WholeReflector(
            "pods",
            "/api/v1/pods",
            {"fieldSelector": f"spec.nodeName={node}"},
            NodePod,
            credentials,
            self._mailbox.put,
            self._changed,
        )

    def start(self) -> None:
        self._reflector.start()

    def close(self) -> None:
        self._reflector.close()
        self._mailbox.close()

    def figures(self, now_ns: int) -> SourceFigures:
        return self._reflector.figures(now_ns)

    def _take(self, news: News) -> Iterator[None]:
        yield from self.index.take(news)
        if isinstance(news, Listed) and news.last:
            self.complete = True

    def _changed(self) -> None:
        """In the reflector's thread, which must not be asked for figures while it reports."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        figures = self._reflector.figures(time.monotonic_ns())
        told(logs.info if figures.up else logs.warning, KUBERNETES, figures)


def _complain(namespace: str, pod: str, annotation: str, why: str) -> None:
    logs.warning("annotation cannot be used", pod=f"{namespace}/{pod}", annotation=annotation, why=why)
