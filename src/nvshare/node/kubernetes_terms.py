"""Which settings of a cluster are a pod's default, and which annotations do not count; for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from nvshare.core.limit_sources import DEFAULT
from nvshare.pods.tenant_name import TenantName

if TYPE_CHECKING:
    from nvshare.node.scheduler_node import SchedulerNode
    from nvshare.pods.kubernetes.limit_annotations import Stated
    from nvshare.pods.kubernetes.pod_directory import PodDirectory

_FIGURES: Final = ("memory", "core", "share")
"""As sources state them."""


def terms_of(node: SchedulerNode, key: str) -> dict[str, Any] | None:
    """None: it is no Kubernetes pod."""
    uid = TenantName.of_key(key).pod_uid
    if not uid:
        return None
    pods = node.kubernetes
    pod = pods.known(key) if pods is not None else None
    if pods is None or pod is None:
        return {"namespace": "", "default_of": {}, "not_accepted": []}
    in_force = node.dispatcher.scheduler.limits.from_source(key, DEFAULT)
    return {
        "namespace": pod.namespace,
        "default_of": _origins(pods.directory, pod.namespace, in_force),
        "not_accepted": [
            {**bad._asdict(), "of": of}
            for of, values in pods.directory.bad_values_of(pod).items()
            for bad in values
        ],
    }


def _origins(
    directory: PodDirectory, namespace: str, in_force: tuple[int | None, int | None, bool | None]
) -> dict[str, str]:
    """Whose default each figure is; nothing of one that neither of them states now."""
    stated_by: dict[str, Stated] = {
        "namespace": directory.namespace_default(namespace),
        "cluster": directory.default,
    }
    origins = {}
    for number, figure in enumerate(_FIGURES):
        for whose, stated in stated_by.items():
            if stated[number] is not None:
                if stated[number] == in_force[number]:
                    origins[figure] = whose
                break
    return origins
