"""The Kubernetes pods of this node: their names, and the limits that the cluster states for them.

1. A pod's annotations enter its limits as the source ``annotation``, from the moment they are known until the
   pod is gone and its last process has ended. The defaults and ceilings of its namespace and of the cluster
   enter them as ``default`` and ``ceiling`` when a process of it registers, and end with its last process.
2. What is known stays in force while the API server is away, and over restarts: it is in the checkpoint.
3. A pod that is deleted while its processes run keeps its limits until the last one has ended.
4. A value that is not accepted changes nothing. It is counted, logged once, and told by a Warning event on
   the pod; so is memory that is refused to a pod, now and then.
5. A large pod's limits change only after a pause, like all changes that tenants can cause (``limit_pauses``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from nvshare.core.events import LimitsSet
from nvshare.core.limit_sources import CEILING, DEFAULT, SOURCES
from nvshare.core.units import format_bytes, format_ns
from nvshare.node.checkpoint_repair import KubernetesPodRow, NamespaceRow
from nvshare.node.config import Config
from nvshare.node.unknown_pods import UnknownPods
from nvshare.pods.kubernetes.limit_annotations import Stated
from nvshare.pods.kubernetes.pod_directory import Complaint, KnownPod, NamespaceTerms, PodDirectory
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
_NS_PER_SEC: Final = 1_000_000_000
FORGET_SEC: Final = 60.0
REFUSED_AGAIN_NS: Final = 600_000_000_000
_REFUSED_MAX: Final = 1024


class KubernetesPods:
    def __init__(self, node: SchedulerNode) -> None:
        self._node = node
        self._dispatcher = node.dispatcher
        self.directory = PodDirectory()
        self.unknown = UnknownPods(node.dispatcher, node.bounds.unknown_pod_ns)
        self._source: PodSource | None = None
        self._mailbox: Mailbox[News] | None = None
        self._labels: dict[str, tuple[str, str]] | None = None  # None: to be made anew
        self._applying: asyncio.Task[None] | None = None
        self._refused_ns: dict[str, int] = {}  # by pod: when an event last told of refused memory
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
        )
        self._source = make(self._mailbox.put, self._source_changed_soon)
        self._source.start()
        dispatcher.loop.call_later(FORGET_SEC, self._forget)

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

    def faults(self) -> list[str]:
        """What keeps the limits of pods from being up to date, for people."""
        figures = self.sources().get(PODS)
        if figures is None or figures.up:
            return []
        seconds = (self._dispatcher.clock() - figures.current_ns) // _NS_PER_SEC
        since = f"for {format_ns(seconds * _NS_PER_SEC)}" if figures.current_ns >= 0 else "since the start"
        return [f"Kubernetes cannot be watched {since}, the last known limits hold: {figures.why}"]

    def warnings(self) -> dict[str, int]:
        """Warning events on pods, by what became of them."""
        return self._source.warnings() if self._source is not None else {}

    def _source_changed_soon(self, source: str) -> None:
        """Called by a thread."""
        if not self._dispatcher.loop.is_closed():
            self._dispatcher.loop.call_soon_threadsafe(self._source_changed, source)

    def _source_changed(self, source: str) -> None:
        figures = self.sources()[source]
        what = source.removeprefix("kubernetes-").replace(PODS, "pods")
        if figures.up:
            logs.info("Kubernetes tells of all changes", of=what)
        elif source == NAMESPACES and figures.status == 403:
            words = "namespaces may not be read: their defaults and ceilings do not count"
            logs.info(words, why=figures.why)
        else:
            words = "Kubernetes cannot be watched: the last known limits stay in force"
            self._dispatcher.repeats.warning(words, logs.OURSELVES, of=what, why=figures.why)

    # ---- the checkpoint ----------------------------------------------------------------------

    def rows(self) -> tuple[list[KubernetesPodRow], list[NamespaceRow]]:
        namespaces = self.directory.namespaces().items()
        return [(*pod,) for pod in self.directory.pods()], [(name, *terms) for name, terms in namespaces]

    def restore(self, pods: list[KubernetesPodRow], namespaces: list[NamespaceRow]) -> None:
        """Rule 2. The limits may be newer, since they are in the journal too."""
        from_source = self._dispatcher.scheduler.limits.from_source
        known = [
            (*pod[:3], Stated(*from_source(TenantName.of_pod(pod[0]).key, ANNOTATION)), *pod[4:])
            for pod in pods
        ]
        terms = {name: NamespaceTerms(Stated(*default), Stated(*most)) for name, default, most in namespaces}
        self.directory.restore((KnownPod(*pod) for pod in known), terms)

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

    # ---- limits ------------------------------------------------------------------------------

    def take(self, news: News) -> Iterator[None]:
        take = self.directory.take_pods if news.source == PODS else self.directory.take_namespaces
        for change in take(news.report):
            if isinstance(change, Complaint):
                self._complain(change)
            else:
                self._changed(change.pod)
            yield

    def _changed(self, pod: KnownPod) -> None:
        key = TenantName.of_pod(pod.uid).key
        self._labels = None
        self._dispatcher.changed = True  # for the checkpoint
        if not pod.gone:
            self.apply(key)
            self.unknown.became_known(pod.uid)
        elif not self._node.members.is_here(key):
            self._withdraw(key)

    def take_settings(self, config: Config) -> None:
        """New ones hold at once."""
        self.unknown.strict = config.text("NVSHARE_UNKNOWN_POD") == "wait"
        memory_bytes, core_percent = config.default_limits
        default = Stated(memory_bytes, core_percent)
        if default == self.directory.default:
            return
        self.directory.default = default
        here = {member.pod for member in self._node.members.everybody() if member.in_pod}
        if here:
            self._applying = self._dispatcher.loop.create_task(self._apply_to(list(here)))

    async def _apply_to(self, pods: list[str]) -> None:
        async for _ in in_pieces(
            map(self.apply, pods), self._dispatcher.clock, self._dispatcher.counters.callbacks.add
        ):
            pass

    def apply(self, key: str, registers: bool = False) -> None:
        """Rule 1. ``registers``: a process of the pod is about to be here."""
        pod = self.known(key)
        if pod is not None and pod.gone:
            return  # rule 3
        stated = {} if pod is None else {ANNOTATION: pod.stated}
        is_here = registers or self._node.members.is_here(key)
        if is_here:
            terms = self.directory.terms_of(pod)
            stated |= {DEFAULT: terms.default, CEILING: terms.ceiling}
        from_source = self._dispatcher.scheduler.limits.from_source
        changed = {source: words for source, words in stated.items() if from_source(key, source) != words}
        if not changed:
            return
        pauses = self._node.members.limit_pauses
        if not pauses.may_change(key):
            pauses.when_over(key, ANNOTATION, partial(self.apply, key))
            return
        for source, words in changed.items():
            change = LimitsSet(key, source, *words)
            if is_here:
                self._node.limits.set(change, key)
            else:  # nobody has to be told, and the checkpoint is soon enough
                self._dispatcher.feed(change)

    def _withdraw(self, key: str) -> None:
        self._node.limits.withdraw(key, _OF_POD, key)

    def _last_process_ended(self, key: str) -> None:
        pod = self.known(key)
        if pod is not None and pod.gone:
            self._withdraw(key)

    def _forget(self) -> None:
        """Names that nothing is shown under any more."""
        shown = {pod for gpu in self._dispatcher.scheduler.gpus.values() for pod in gpu.tenants}
        for gpu in self._dispatcher.scheduler.gpus.values():
            shown |= gpu.figures.departed.figures().keys()
        for uid in self.directory.forget(lambda uid: TenantName.of_pod(uid).key in shown):
            self._withdraw(TenantName.of_pod(uid).key)  # its processes may have ended while no daemon ran
            self._labels = None
        self._dispatcher.loop.call_later(FORGET_SEC, self._forget)

    # ---- complaints --------------------------------------------------------------------------

    def _complain(self, complaint: Complaint) -> None:
        pod, namespace, (annotation, value, why) = complaint
        self._dispatcher.counters.events["annotations_bad"] += 1
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
