"""The kinds of objects that are served: one row each. Discovery, paths and checks are made from the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_WRITABLE: Final = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
COMMON_FIELDS: Final = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resource:
    plural: str
    kind: str
    group: str = ""
    version: str = "v1"
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ("status",)
    fields: tuple[str, ...] = ()
    """What a field selector may name, beside name and namespace."""
    verbs: tuple[str, ...] = _WRITABLE
    empty: str = ""
    """What a bookmark carries beside its metadata, as JSON members."""
    kept_max: int = 0
    """The oldest go when there are more; 0: all are kept."""
    stored: bool = True
    """A review is answered and forgotten."""
    columns: tuple[tuple[str, str], ...] = ()
    """Of the table that kubectl shows, beside name and age: heading, and the path or word of its value."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()

    @property
    def selectable(self) -> frozenset[str]:
        return frozenset({*COMMON_FIELDS[: 2 if self.namespaced else 1], *self.fields})


PODS: Final = Resource(
    plural="pods",
    kind="Pod",
    short_names=("po",),
    subresources=("status", "log", "eviction", "binding"),
    fields=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    empty='"spec":{"containers":null},"status":{}',
    columns=(
        ("Ready", "ready"),
        ("Status", "pod-status"),
        ("Restarts", "restarts"),
        ("Node", "spec.nodeName"),
    ),
)
NODES: Final = Resource(
    plural="nodes",
    kind="Node",
    namespaced=False,
    short_names=("no",),
    fields=("spec.unschedulable",),
    empty='"spec":{},"status":{}',
    columns=(("Status", "node-status"), ("Version", "status.nodeInfo.kubeletVersion")),
)
NAMESPACES: Final = Resource(
    plural="namespaces",
    kind="Namespace",
    namespaced=False,
    short_names=("ns",),
    fields=("status.phase",),
    empty='"spec":{},"status":{}',
    columns=(("Status", "status.phase"),),
)

EVENTS: Final = Resource(
    plural="events",
    kind="Event",
    short_names=("ev",),
    subresources=(),
    kept_max=1000,
    fields=(
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    empty='"involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,'
    '"reportingComponent":"","reportingInstance":""',
    columns=(("Type", "type"), ("Reason", "reason"), ("Object", "involved"), ("Message", "message")),
)
JOBS: Final = Resource(
    plural="jobs",
    kind="Job",
    group="batch",
    fields=("status.successful",),
    empty='"spec":{"template":{"metadata":{"creationTimestamp":null},"spec":{"containers":null}}},"status":{}',
    columns=(("Completions", "spec.completions"), ("Active", "status.active")),
)
SERVICE_ACCOUNTS: Final = Resource(
    plural="serviceaccounts", kind="ServiceAccount", short_names=("sa",), subresources=()
)
_SPEC_AND_STATUS: Final = '"spec":{},"status":{}'


def _workload(plural: str, kind: str, short_name: str) -> Resource:
    return Resource(
        plural=plural,
        kind=kind,
        group="apps",
        short_names=(short_name,),
        empty=_SPEC_AND_STATUS,
        columns=(("Desired", "spec.replicas"), ("Ready", "status.readyReplicas")),
    )


def _review(plural: str, kind: str, group: str) -> Resource:
    return Resource(
        plural=plural,
        kind=kind,
        group=group,
        namespaced=False,
        subresources=(),
        verbs=("create",),
        stored=False,
    )


def _of_rights(plural: str, kind: str, empty: str) -> Resource:
    group = "rbac.authorization.k8s.io"
    return Resource(plural=plural, kind=kind, group=group, namespaced=False, subresources=(), empty=empty)


def _of_prometheus(plural: str, kind: str) -> Resource:
    """Of the Prometheus operator."""
    return Resource(
        plural=plural, kind=kind, group="monitoring.coreos.com", subresources=(), empty='"spec":{}'
    )


DAEMON_SETS: Final = Resource(
    plural="daemonsets",
    kind="DaemonSet",
    group="apps",
    short_names=("ds",),
    empty=_SPEC_AND_STATUS,
    columns=(("Desired", "status.desiredNumberScheduled"), ("Ready", "status.numberReady")),
)
BUDGETS: Final = Resource(
    plural="poddisruptionbudgets",
    kind="PodDisruptionBudget",
    group="policy",
    short_names=("pdb",),
    empty=_SPEC_AND_STATUS,
    columns=(("Min Available", "spec.minAvailable"), ("Allowed Disruptions", "status.disruptionsAllowed")),
)
RESOURCES: Final = (
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    Resource(plural="resourcequotas", kind="ResourceQuota", short_names=("quota",), empty=_SPEC_AND_STATUS),
    Resource(plural="configmaps", kind="ConfigMap", short_names=("cm",), subresources=()),
    Resource(plural="secrets", kind="Secret", subresources=(), fields=("type",)),
    Resource(plural="services", kind="Service", short_names=("svc",), empty='"spec":{},"status":{}'),
    SERVICE_ACCOUNTS,
    JOBS,
    _workload("deployments", "Deployment", "deploy"),
    _workload("replicasets", "ReplicaSet", "rs"),
    _workload("statefulsets", "StatefulSet", "sts"),
    DAEMON_SETS,
    BUDGETS,
    Resource(plural="leases", kind="Lease", group="coordination.k8s.io", subresources=(), empty='"spec":{}'),
    Resource(
        plural="networkpolicies",
        kind="NetworkPolicy",
        group="networking.k8s.io",
        short_names=("netpol",),
        subresources=(),
        empty='"spec":{"podSelector":{}}',
    ),
    _of_rights("clusterroles", "ClusterRole", '"rules":null'),
    _of_rights("clusterrolebindings", "ClusterRoleBinding", '"roleRef":{"apiGroup":"","kind":"","name":""}'),
    _of_prometheus("podmonitors", "PodMonitor"),
    _of_prometheus("prometheusrules", "PrometheusRule"),
    _review("selfsubjectaccessreviews", "SelfSubjectAccessReview", "authorization.k8s.io"),
    _review("subjectaccessreviews", "SubjectAccessReview", "authorization.k8s.io"),
    _review("tokenreviews", "TokenReview", "authentication.k8s.io"),
)
BY_PATH: Final = {(row.group, row.version, row.plural): row for row in RESOURCES}
BY_KIND: Final = {(row.api_version, row.kind): row for row in RESOURCES}


def resource_named(name: str) -> Resource:
    """By plural, ``plural.group``, singular, kind or short name."""
    for row in RESOURCES:
        if name in (row.plural, f"{row.plural}.{row.group}", row.singular, row.kind, *row.short_names):
            return row
    known = ", ".join(row.plural for row in RESOURCES)
    raise ValueError(f"no resource {name!r}; there are: {known}")
