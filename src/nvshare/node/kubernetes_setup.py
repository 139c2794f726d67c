"""Whether and how the daemon asks the Kubernetes API server. If it does not, nothing is imported for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from nvshare.node.bounds import Bounds
from nvshare.node.config import Config
from nvshare.runtime import logs
from nvshare.runtime.errors import StartError

if TYPE_CHECKING:
    from nvshare.pods.kubernetes.pod_source import News, PodSource

    MakePodSource = Callable[[Callable[[News], None], Callable[[str], None]], PodSource]

_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_NODE_NAME: Final = (
    "NVSHARE_NODE_NAME is not set, so it is not known which pods are this node's. In a DaemonSet take it from"
    " the field spec.nodeName (valueFrom: fieldRef: fieldPath: spec.nodeName); or switch Kubernetes off with"
    " --kubernetes off"
)


def pod_source_maker(
    config: Config, bounds: Bounds, environment: Mapping[str, str] = os.environ
) -> MakePodSource | None:
    """Makes the source of pods; None if Kubernetes is off. Raises StartError."""
    wish = config.text("NVSHARE_KUBERNETES")
    if wish == "off" or (wish == "auto" and not environment.get(_IN_CLUSTER)):
        return None
    from nvshare.pods.kubernetes.credentials import find_credentials, is_in_cluster
    from nvshare.pods.kubernetes.kubeconfig import AccessError
    from nvshare.pods.kubernetes.list_watch import Timing
    from nvshare.pods.kubernetes.pod_source import PodSource

    if wish == "auto" and not is_in_cluster(environment):
        return None
    try:
        credentials = find_credentials(environment)
        credentials.tls()
    except AccessError as error:
        raise StartError(f"NVSHARE_KUBERNETES={wish}, but {error}; or use --kubernetes off") from error
    node_name = config.text("NVSHARE_NODE_NAME")
    if not node_name:
        raise StartError(_NODE_NAME)
    timing = Timing(answer_sec=bounds.kubernetes_answer_ns / 1e9, idle_sec=bounds.kubernetes_idle_ns / 1e9)
    host, port, *_ = credentials.endpoint
    logs.info("names and limits of pods come from Kubernetes", server=f"{host}:{port}", node=node_name)
    return lambda deliver, changed: PodSource(credentials, node_name, deliver, changed, timing)
