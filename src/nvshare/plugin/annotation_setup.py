"""Whether and how the node's annotation is written. If it is not, nothing is imported for it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nvshare.plugin.config import Config
from nvshare.plugin.node_annotation import NodeAnnotation
from nvshare.pods.kubernetes.credentials import find_credentials, is_in_cluster
from nvshare.pods.kubernetes.kubeconfig import AccessError
from nvshare.runtime.errors import StartError


def node_annotation(config: Config, environment: Mapping[str, str] = os.environ) -> NodeAnnotation | None:
    """None if it is not wanted. Raises StartError."""
    wish = config.text("NVSHARE_KUBERNETES")
    if wish == "off" or (wish == "auto" and not is_in_cluster(environment)):
        return None
    node = config.text("NVSHARE_NODE_NAME")
    if not node:
        raise StartError(
            f"NVSHARE_KUBERNETES={wish}, but NVSHARE_NODE_NAME is not set; in a DaemonSet take it from the"
            f" field spec.nodeName (valueFrom: fieldRef: fieldPath: spec.nodeName), or write no annotation"
            f" with NVSHARE_KUBERNETES=off"
        )
    try:
        credentials = find_credentials(environment)
        credentials.tls()
    except AccessError as error:
        raise StartError(f"NVSHARE_KUBERNETES={wish}, but {error}; or use NVSHARE_KUBERNETES=off") from error
    return NodeAnnotation(credentials, node)
