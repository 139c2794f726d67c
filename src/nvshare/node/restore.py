"""Takes the previous daemon's state over into a new node."""

from __future__ import annotations

from nvshare.core import events
from nvshare.core.limit_sources import CEILING, DEFAULT
from nvshare.gpu.inventory import Device, GpuError
from nvshare.node import checkpoint
from nvshare.node.checkpoint import Saved
from nvshare.node.checkpoint_repair import KubernetesRows
from nvshare.node.previous_state import PreviousState
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.pods.peer import Process
from nvshare.pods.tenant_name import TenantName
from nvshare.runtime import logs


def restore(node: SchedulerNode, previous: PreviousState) -> None:
    dispatcher, saved = node.dispatcher, previous.saved
    if saved is None:
        return
    for gpu in _gpus_of(saved):
        for device in _found_again(node, gpu):
            node.gpus.introduce_again(device)
    known = [m for m in checkpoint.members_of(saved) if m.gpu in dispatcher.scheduler.gpus]
    alive = [member for member in known if node.members.expect(member)]
    dispatcher.feed(events.Restored(checkpoint.core_part(saved, alive)))
    for gpu in saved.draining:
        node.drains.begin(gpu)
    if node.kubernetes is not None:
        rows = KubernetesRows(saved.kubernetes_pods, saved.namespaces, saved.bad_values)
        node.kubernetes.restore(rows, saved.taken_ns)
    else:
        _withdraw_terms(node)
    for pid, start_ticks, run in saved.runs:
        node.members.runs.restore(Process(pid, start_ticks), run)
    logs.info(
        "state of the previous daemon restored",
        clients=len(alive),
        dead=len(saved.clients) - len(alive),
        limits=len(saved.limits),
    )


def _withdraw_terms(node: SchedulerNode) -> None:
    """Kubernetes is switched off, so nobody would ever change or withdraw what it said."""
    for pod in node.dispatcher.scheduler.limits.by_pod():
        if TenantName.of_key(pod).pod_uid:
            node.limits.withdraw(pod, ("annotation", DEFAULT, CEILING), logs.OURSELVES)


def _gpus_of(saved: Saved) -> set[str]:
    gpus = {c.gpu for c in saved.clients} | {gpu for _, gpu, _ in saved.lags}
    gpus |= {gpu for _, gpu, _ in saved.departed} | {gpu for _, gpu, _, _ in saved.present}
    return gpus | set(saved.draining)


def _found_again(node: SchedulerNode, gpu: str) -> list[Device]:
    try:
        return node.gpus.inventory.resolve(gpu)
    except GpuError:
        return []  # it was taken out of the machine, or out of the list
