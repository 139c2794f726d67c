"""What is asked of the Kubernetes API server, and what comes of it; all 0 while Kubernetes is off."""

from __future__ import annotations

from nvshare.metrics.rows import Rows

row = Rows()
KUBERNETES_PODS = row(
    "nvshare_kubernetes_pods", (), "Pods of this node that the API server has named.", "kubernetes"
)
KUBERNETES_OVERLOOKED = row(
    "nvshare_kubernetes_overlooked_total",
    (),
    "Pods and namespaces that the API server named in vain, because there were more than there is room for.",
    "kubernetes",
)
KUBERNETES_LISTS = row(
    "nvshare_kubernetes_lists_total",
    ("source",),
    "Lists begun: at the start, and whenever changes may have been missed.",
    "kubernetes",
)
KUBERNETES_WATCHES = row(
    "nvshare_kubernetes_watches_total",
    ("source",),
    "Watches begun; the server ends each after some minutes.",
    "kubernetes",
)
KUBERNETES_EVENTS = row(
    "nvshare_kubernetes_events_total", ("source",), "Changes that watches have reported.", "kubernetes"
)
KUBERNETES_BAD_ANNOTATIONS = row(
    "nvshare_kubernetes_bad_annotations_total",
    (),
    "Values of annotations that were not accepted, so that what they last said stayed in force.",
    "kubernetes",
)
KUBERNETES_UNKNOWN_PODS = row(
    "nvshare_kubernetes_unknown_pods_total",
    (),
    "Pods that started with the cluster's defaults alone, because the API server had not named them in time.",
    "kubernetes",
)
KUBERNETES_WARNINGS = row(
    "nvshare_kubernetes_warnings_total",
    ("result",),
    "Warning events for pods: sent; failed; or dropped, because there were too many or they are not"
    " permitted.",
    "kubernetes",
)
POD_CLAIMS_IGNORED = row(
    "nvshare_pod_claims_ignored_total",
    (),
    "Registrations that named another pod than the kernel does. What they say about their pod is ignored.",
    "scheduler",
)
