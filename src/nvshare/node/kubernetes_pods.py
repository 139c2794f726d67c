"""The Kubernetes pods of this node: their names, and the limits that the cluster states for them.

1. A pod's annotations enter its limits as the source ``annotation`` from the moment they are known. The
   defaults and ceilings of its namespace and of the cluster enter them as ``default`` and ``ceiling`` when a
   process of it registers, and end with its last process.
2. What is known stays in force while the API server is away, and over restarts: it is in the checkpoint and
   in the journal. Of a pod that is not known, or whose namespace is not, a default or ceiling that holds is
   never lifted.
3. A pod that is deleted keeps its limits while its processes run, and for ``gone_pod_ns`` after that, since
   others of its cgroup may still come.
4. A value that is not accepted changes nothing. It is counted, logged once, and told by a Warning event on
   the pod; so is memory that is refused to a pod, now and then.
5. Between two changes of a pod's annotations there is a pause (``limit_pauses``), so nobody can keep the
   daemon busy by changing them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from nvshare.core.events import LimitsSet
from nvshare.core.limit_sources import CEILING, DEFAULT, SOURCES
from nvshare.core.units import format_bytes, format_ns
from nvshare.node.checkpoint_repair import KubernetesRows, NamespaceRow
from nvshare.node.config import Config
from nvshare.node.unknown_pods import UnknownPods
from nvshare.pods.kubernetes.bad_values import rows_of
from nvshare.pods.kubernetes.limit_annotations import NOTHING, Stated, stricter
from nvshare.pods.kubernetes.pod_directory import (
    NAMESPACES_MAX,
    OF_PODS,
    PODS_MAX,
    Complaint,
    KnownPod,
    NamespaceTerms,
    PodDirectory,
    PodForgotten,
    for_checkpoint,
)
from nvshare.pods.kubernetes.pod_source import NAMESPACES, PODS, News, PodSource
from nvshare.pods.kubernetes.reflection import SourceFigures
from nvshare.pods.kubernetes.warning_events import Warned
from nvshare.pods.tenant_name import TenantName
from nvshare.runtime import logs
from nvshare.runtime.cooperative import in_pieces
from nvshare.runtime.mailbox import Mailbox

if TYPE_CHECKING:
    from nvshare.node.scheduler_node import SchedulerNode

ANNOTATION: Final = "annotation"
_OF_POD: Final = (*SOURCES, CEILING)
_OF_CLUSTER: Final = (ANNOTATION, DEFAULT, CEILING)
_NS_PER_SEC: Final = 1_000_000_000
FORGET_SEC: Final = 60.0
LIST_AGAIN_SEC: Final = 10.0
_MAILBOX_MAX: Final = 128
REFUSED_AGAIN_NS: Final = 600_000_000_000
_REFUSED_MAX: Final = 1024


class KubernetesPods:
    def __init__(self, node: SchedulerNode) -> None:
        self._node = node
        self._dispatcher = node.dispatcher
        self.directory = PodDirectory(lambda uid: self._has_processes(TenantName.of_pod(uid).key))
        self.unknown = UnknownPods(node.dispatcher, node.bounds.unknown_pod_ns)
        self._source: PodSource | None = None
        self._mailbox: Mailbox[News] | None = None
        self._labels: dict[str, tuple[str, str]] | None = None  # None: to be made anew
        self._tasks: set[asyncio.Task[None]] = set()
        self._refused_ns: dict[str, int] = {}  # by pod: when an event last told of refused memory
        self._idle_ns: dict[str, int] = {}  # by pod that is gone or not known: since when without processes
        self._listing_again: set[str] = set()  # sources
        self._restored_ns = -1
        node.members.pod_ended = self._last_process_ended

    # ---- the source --------------------------------------------------------------------------

    def start(self, make: Callable[[Callable[[News], None], Callable[[str], None]], PodSource]) -> None:
        """``make`` makes the source from who takes its news, and who is told that it went up or down."""
        dispatcher = self._dispatcher
        self._mailbox = Mailbox(
            dispatcher.loop,
            self.take,
            dispatcher.clock,
            self._note_step,
            lambda error: dispatcher.note_bug("news of Kubernetes", error),
            _MAILBOX_MAX,
        )
        self._source = make(self._mailbox.put, self._source_changed_soon)
        self._source.start()
        self._forget_soon()

    def _note_step(self, held_ns: int) -> None:
        self._dispatcher.counters.callbacks.add(held_ns)
        self._dispatcher.counters.kubernetes_steps.add(held_ns)

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
        if self._mailbox is not None:
            self._mailbox.close()

    def sources(self) -> dict[str, SourceFigures]:
        return dict(self._source.figures(self._dispatcher.clock())) if self._source is not None else {}

    def known_ns(self, figures: SourceFigures) -> int:
        """As of when anything is known: by the source, otherwise by the previous daemon; -1: nothing is."""
        return figures.current_ns if figures.current_ns >= 0 else self._restored_ns

    def faults(self) -> list[str]:
        """What keeps the limits of pods from being complete and up to date, for people."""
        found = []
        up = {source for source, figures in self.sources().items() if figures.up}
        for source, figures in self.sources().items():
            if figures.up or (source == NAMESPACES and figures.status == HTTPStatus.FORBIDDEN):
                continue
            seconds = (self._dispatcher.clock() - figures.current_ns) // _NS_PER_SEC
            since = (
                f"for {format_ns(seconds * _NS_PER_SEC)}" if figures.current_ns >= 0 else "since the start"
            )
            what = "Kubernetes" if source == PODS else "Kubernetes' namespaces"
            found.append(f"{what} cannot be watched {since}, the last known limits hold: {figures.why}")
        if PODS in up and not self.directory.pods() and self._any_in_pods():
            words = f"no pod of node {self.directory.node_name!r} is known, but processes of pods are here"
            found.append(f"{words}: is NVSHARE_NODE_NAME the node's name in Kubernetes?")
        for kind in sorted(self.directory.incomplete):
            most = PODS_MAX if kind == OF_PODS else NAMESPACES_MAX
            found.append(f"there are more than {most} {kind}: what some of them state on limits is not known")
        return found

    def _any_in_pods(self) -> bool:
        return any(member.in_pod for member in self._node.members.registered.values())

    def warnings(self) -> dict[str, int]:
        """Warning events on pods, by what became of them."""
        return self._source.warnings() if self._source is not None else {}

    def _source_changed_soon(self, source: str) -> None:
        """Called by a thread."""
        if not self._dispatcher.loop.is_closed():
            self._dispatcher.loop.call_soon_threadsafe(self._source_changed, source)

    def _source_changed(self, source: str) -> None:
        figures, repeats = self.sources()[source], self._dispatcher.repeats
        what = source.removeprefix("kubernetes-").replace(PODS, "pods")
        if figures.up:
            repeats.info("Kubernetes tells of all changes", logs.OURSELVES, of=what)
        elif source == NAMESPACES and figures.status == HTTPStatus.FORBIDDEN:
            words = "namespaces may not be read: their defaults and ceilings do not count"
            repeats.info(words, logs.OURSELVES, why=figures.why)
            self.directory.namespaces_unreadable = True
            self._settle([pod for uid in self.unknown.waiting() if (pod := self.directory.get(uid))])
        else:
            words = "Kubernetes cannot be watched: the last known limits stay in force"
            repeats.warning(words, logs.OURSELVES, of=what, why=figures.why)

    # ---- the checkpoint ----------------------------------------------------------------------

    def rows(self) -> Callable[[], KubernetesRows]:
        """Makes them in another thread, from what never changes."""
        pods, namespaces, unreadable, told = self.directory.copies()

        def made() -> KubernetesRows:
            needed = for_checkpoint(pods, namespaces, unreadable)
            states: list[NamespaceRow] = [(name, *terms) for name, terms in needed.items()]
            return KubernetesRows([(*pod,) for pod in pods], states, rows_of(told))

        return made

    def restore(self, rows: KubernetesRows, taken_ns: int) -> None:
        """Rule 2. The limits may be newer, since they are in the journal too."""
        self._restored_ns = taken_ns if rows.pods or rows.namespaces else -1
        from_source = self._dispatcher.scheduler.limits.from_source
        known = []
        for row in map(KnownPod._make, rows.pods):
            stated = Stated(*from_source(TenantName.of_pod(row.uid).key, ANNOTATION))
            known.append(row._replace(stated=Stated(*row.stated) if row.gone and not any(stated) else stated))
        terms = {
            name: NamespaceTerms(Stated(*default), Stated(*most)) for name, default, most in rows.namespaces
        }
        self.directory.restore(known, terms)
        self.directory.bad_values.restore(rows.bad_values)

    # ---- names -------------------------------------------------------------------------------

    def known(self, key: str) -> KnownPod | None:
        """The pod with this key, also after it is gone."""
        return self.directory.get(TenantName.of_key(key).pod_uid)

    def labels(self) -> dict[str, tuple[str, str]]:
        """Namespace and name of all pods that are known, by key. Never changes: a new one is made."""
        if self._labels is None:
            pods = self.directory.pods()
            self._labels = {TenantName.of_pod(pod.uid).key: (pod.namespace, pod.name) for pod in pods}
        return self._labels

    def display(self, key: str) -> str:
        """What people call the pod; its key until its name is known, and while another has the name."""
        pod = self.known(key)
        if pod is None or self.directory.find(pod.namespace, pod.name) is not pod:
            return key
        return f"{pod.namespace}/{pod.name}"

    def find(self, tenant: TenantName) -> str:
        """The key of the pod that has this name; empty if there is none."""
        pod = self.directory.find(tenant.namespace, tenant.name)
        return TenantName.of_pod(pod.uid).key if pod is not None else ""

    def is_settled(self, key: str) -> bool:
        """All that the cluster states on its limits is known, or was when it was deleted."""
        pod = self.known(key)
        return pod is not None and (pod.gone or self.directory.is_settled(pod))

    # ---- limits ------------------------------------------------------------------------------

    def take(self, news: News) -> Iterator[None]:
        take = self.directory.take_pods if news.source == PODS else self.directory.take_namespaces
        complete = not self.directory.incomplete
        for change in take(news.report):
            if isinstance(change, Complaint):
                self._complain(change)
            elif isinstance(change, PodForgotten):
                self._withdraw(TenantName.of_pod(change.pod.uid).key)
            elif change is not None:
                self._changed(change.pod)
            yield
        if complete and self.directory.incomplete:
            words = "more pods or namespaces than there is room for: some are not known"
            self._dispatcher.repeats.warning(words, logs.OURSELVES, of=" ".join(self.directory.incomplete))
        for kind in self.directory.could_complete():
            self._list_again(PODS if kind == OF_PODS else NAMESPACES)

    def _list_again(self, source: str) -> None:
        """Soon, and not all the time."""
        if source not in self._listing_again and self._source is not None:
            self._listing_again.add(source)
            self._dispatcher.loop.call_later(LIST_AGAIN_SEC, self._list_now, source)

    def _list_now(self, source: str) -> None:
        self._listing_again.discard(source)
        if self._source is not None and self.directory.could_complete():
            self._source.list_again(source)

    def _changed(self, pod: KnownPod) -> None:
        self._labels = None
        self._dispatcher.changed = True  # for the checkpoint
        if not pod.gone or self._has_processes(TenantName.of_pod(pod.uid).key):  # rule 3
            self._settle([pod])

    def _settle(self, pods: list[KnownPod]) -> None:
        for pod in pods:
            self.apply(TenantName.of_pod(pod.uid).key)
            if self.directory.is_settled(pod):
                self.unknown.became_known(pod.uid)

    def take_settings(self, config: Config) -> None:
        """New ones hold at once."""
        self.directory.node_name = config.text("NVSHARE_NODE_NAME")
        self.unknown.strict = config.text("NVSHARE_UNKNOWN_POD") == "wait"
        memory_bytes, core_percent = config.default_limits
        default = Stated(memory_bytes, core_percent)
        if default == self.directory.default:
            return
        self.directory.default = default
        here = {member.pod for member in self._node.members.everybody() if member.in_pod}
        if here:
            self._work(map(self.apply, list(here)))

    def _work(self, steps: Iterator[None], done: Callable[[], None] = lambda: None) -> None:
        task = self._dispatcher.loop.create_task(self._in_pieces(steps))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: done())

    async def _in_pieces(self, work: Iterator[None]) -> None:
        async for _ in in_pieces(work, self._dispatcher.clock, self._dispatcher.counters.callbacks.add):
            pass

    def apply(self, key: str, registers: bool = False) -> None:
        """Rules 1 and 2. ``registers``: a process of the pod is about to be here."""
        pod = self.known(key)
        stated = {} if pod is None else {ANNOTATION: pod.stated}
        is_here = registers or self._node.members.is_here(key)
        stated |= self._terms(key, pod, is_here)
        from_source = self._dispatcher.scheduler.limits.from_source
        changed = {source: words for source, words in stated.items() if from_source(key, source) != words}
        if not changed:
            return
        pauses = self._node.members.limit_pauses
        if not pauses.may_annotate(key):
            pauses.when_over(key, ANNOTATION, partial(self.apply, key))
            return
        for source, words in changed.items():
            change = LimitsSet(key, source, *words)
            if is_here:
                self._node.limits.set(change, key)
            else:  # nobody has to be told, and the checkpoint is soon enough
                self._dispatcher.feed(change)

    def _terms(self, key: str, pod: KnownPod | None, is_here: bool) -> dict[str, Stated]:
        """Defaults and ceilings."""
        certain = pod is not None and self.directory.is_settled(pod)
        if not is_here:
            return {DEFAULT: NOTHING, CEILING: NOTHING} if certain and pod and not pod.gone else {}
        terms = self.directory.terms_of(pod)
        found = {DEFAULT: terms.default, CEILING: terms.ceiling}
        if certain:
            return found
        from_source = self._dispatcher.scheduler.limits.from_source
        return {source: stricter(said, Stated(*from_source(key, source))) for source, said in found.items()}

    def _withdraw(self, key: str, sources: tuple[str, ...] = _OF_POD) -> None:
        self._labels = None
        self._node.limits.withdraw(key, sources, key)

    def _last_process_ended(self, key: str) -> None:
        if self.known(key) is not None:
            self.apply(key)

    # ---- pods that are gone ------------------------------------------------------------------

    def _has_processes(self, key: str) -> bool:
        return self._node.members.capacity.has_pod(key)

    def _forget_soon(self) -> None:
        every_sec = min(FORGET_SEC, self._node.bounds.gone_pod_ns / 1e9)
        self._dispatcher.loop.call_later(every_sec, self._forget)

    def _forget(self) -> None:
        self._work(self._forgetting(), self._forget_soon)

    def _forgetting(self) -> Iterator[None]:
        """Rule 3, and names that nothing is shown under any more."""
        clock, idle_ns = self._dispatcher.clock, {}
        shown: set[str] = set()
        for gpu in self._dispatcher.scheduler.gpus.values():
            shown |= gpu.tenants.keys() | gpu.figures.departed.figures().keys()
        for key in self._stale():
            if not self._has_processes(key):
                idle_ns[key] = self._idle_ns.get(key, clock())
            yield
        self._idle_ns = idle_ns
        until_ns = clock() - self._node.bounds.gone_pod_ns
        for key in [key for key, since_ns in idle_ns.items() if since_ns <= until_ns]:
            pod = self.known(key)
            if not self._has_processes(key) and (pod is None or pod.gone):
                self._withdraw(key, _OF_POD if pod is not None else _OF_CLUSTER)
                if pod is not None and key not in shown:
                    self.directory.forget(pod.uid)
            yield

    def _stale(self) -> Iterator[str]:
        """Pods that are gone, and others that have limits although they are not known."""
        for pod in self.directory.pods():
            if pod.gone:
                yield TenantName.of_pod(pod.uid).key
        for key in self._dispatcher.scheduler.limits.by_pod():
            if TenantName.of_key(key).pod_uid and self.known(key) is None:
                yield key

    # ---- complaints --------------------------------------------------------------------------

    def _complain(self, complaint: Complaint) -> None:
        pod, namespace, (annotation, value, why) = complaint
        self._dispatcher.counters.events["annotations_bad"] += 1
        self._dispatcher.changed = True  # the next daemon does not tell it again
        whose = f"{namespace}/{pod.name}" if pod is not None else namespace
        fields = {"pod" if pod is not None else "namespace": whose, "annotation": annotation, "value": value}
        owner = TenantName.of_pod(pod.uid).key if pod is not None else logs.OURSELVES
        words = "annotation not accepted: what it last said stays in force"
        self._dispatcher.repeats.warning(words, owner, **fields, why=why)
        if pod is not None:
            message = f"{annotation}: {value!r} is not accepted, what it last said stays in force; {why}"
            self._warn(pod, "GPULimitNotAccepted", message)

    def memory_refused(self, key: str, asked_bytes: int, limit_bytes: int) -> None:
        pod, now_ns = self.known(key), self._dispatcher.clock()
        if pod is None or now_ns < self._refused_ns.get(key, -REFUSED_AGAIN_NS) + REFUSED_AGAIN_NS:
            return
        if len(self._refused_ns) >= _REFUSED_MAX:
            self._refused_ns.clear()
        self._refused_ns[key] = now_ns
        amounts = f"{format_bytes(asked_bytes)} more of GPU memory; its limit is {format_bytes(limit_bytes)}"
        self._warn(pod, "GPUMemoryRefused", f"a process was refused {amounts}")

    def _warn(self, pod: KnownPod, reason: str, message: str) -> None:
        if self._source is not None and not pod.gone:
            self._source.warn(Warned(pod.namespace, pod.name, pod.api_uid or pod.uid, reason, message))
