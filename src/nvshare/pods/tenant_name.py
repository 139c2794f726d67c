"""The identity of a tenant: what kind it is, what it is called, and whose it is.

1. The kernel's facts make an identity: the UID of a Kubernetes pod, a container, or a process of its own. A
   local pod, which ``nvshare run`` starts, has a namespace and a name.
2. ``key`` is its text, which the core, checkpoints and people use. Only this module makes such a text or
   takes one apart.
3. ``labels`` are for display. They do not depend on the key alone: a Kubernetes pod keeps its key when its
   namespace and name become known.
4. A user's local pods are in a namespace of his own, ``user-UID``. So two users can use the same name, and
   neither can name, join or take over the other's pod. The number is the kernel's, since names can change.
5. A container below ``user.slice`` belongs to that user, and a process in no pod to the user it runs as. All
   other tenants are the operator's.
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache
from typing import Final, NamedTuple

from nvshare.pods.cgroups import UNSEEN, Place

ACCEPTED: Final = (
    "[namespace/]name of lower-case letters, digits, '.' and '-', or a tenant as `ctl clients` shows it"
)
DEFAULT_NAMESPACE: Final = "default"
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_USER: Final = re.compile(r"user-(?P<uid>0|[1-9][0-9]{0,9})", re.ASCII)
_CACHED: Final = 8192


class TenantKind(enum.StrEnum):
    """The values are what a key begins with, before a colon. A local pod's key has no such beginning."""

    KUBERNETES_POD = "pod"
    CONTAINER = "container"
    PROCESS = "process"
    LOCAL_POD = "local"


LOCAL_PREFIX: Final = f"{TenantKind.LOCAL_POD}:"
"""People may write it before a local pod's name, in case a Kubernetes pod has the same name."""
_IDENTIFIERS: Final = {
    TenantKind.KUBERNETES_POD: re.compile(r"[0-9a-f-]{32,36}"),
    TenantKind.CONTAINER: re.compile(r"[A-Za-z0-9._/=-]{1,210}"),
    TenantKind.PROCESS: re.compile(r"[0-9]+:[0-9]+"),
}
"""What stands behind the colon, in the text that people write."""


def user_namespace(uid: int) -> str:
    return f"user-{uid}"


class TenantName(NamedTuple):
    kind: TenantKind
    identifier: str = ""
    """Of a Kubernetes pod its UID, of a container its id, of a process its pid and start time."""
    namespace: str = ""
    name: str = ""

    @classmethod
    def of_place(cls, place: Place) -> TenantName | None:
        """The pod or container that a process is in; None: in neither."""
        if place.pod_uid:
            return cls.of_pod(place.pod_uid)
        if place.container and place != UNSEEN:
            return cls(TenantKind.CONTAINER, place.container)
        return None

    @classmethod
    def of_pod(cls, uid: str, namespace: str = "", name: str = "") -> TenantName:
        """A Kubernetes pod, with its name if that is known."""
        return cls(TenantKind.KUBERNETES_POD, uid, namespace, name)

    @classmethod
    def of_process(cls, pid: int, start_ticks: int) -> TenantName:
        """A process that is a tenant of its own."""
        return cls(TenantKind.PROCESS, f"{pid}:{start_ticks}")

    @classmethod
    def parse(cls, text: str) -> TenantName | None:
        """A tenant as people write it; None if the text is not accepted."""
        kind, colon, identifier = text.partition(":")
        for known, pattern in _IDENTIFIERS.items():
            if colon and kind == known and pattern.fullmatch(identifier):
                return cls(known, identifier)
        namespace, slash, name = text.removeprefix(LOCAL_PREFIX).rpartition("/")
        namespace = namespace if slash else DEFAULT_NAMESPACE
        if _NAME.fullmatch(namespace) and _NAME.fullmatch(name):
            return cls(TenantKind.LOCAL_POD, namespace=namespace, name=name)
        return None

    @classmethod
    def of_key(cls, key: str) -> TenantName:
        """The tenant with a key of ours."""
        return _of_key(key)

    @property
    def key(self) -> str:
        if self.kind is not TenantKind.LOCAL_POD:
            return f"{self.kind}:{self.identifier}"
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def labels(self) -> tuple[str, str]:
        """Namespace and name. A tenant without a name has no namespace, and its key as name."""
        return (self.namespace, self.name) if self.name else ("", self.key)

    @property
    def is_process(self) -> bool:
        return self.kind is TenantKind.PROCESS

    @property
    def pod_uid(self) -> str:
        """Of a Kubernetes pod; empty for others."""
        return self.identifier if self.kind is TenantKind.KUBERNETES_POD else ""

    @property
    def is_local_pod(self) -> bool:
        return self.kind is TenantKind.LOCAL_POD

    @property
    def owner_uid(self) -> int | None:
        """The user whose number the name carries (rules 4 and 5); None: it carries none."""
        carrier, rest = self.namespace, self.name
        if self.kind is TenantKind.CONTAINER:
            carrier, _, rest = self.identifier.partition("/")
        elif self.kind is not TenantKind.LOCAL_POD:
            return None
        match = _USER.fullmatch(carrier)
        return int(match["uid"]) if match and rest else None

    def of_user(self, uid: int) -> TenantName | None:
        """The local pod that a user means by this name; None if the namespace is not his."""
        own = user_namespace(uid)
        return self._replace(namespace=own) if self.namespace in (DEFAULT_NAMESPACE, own) else None


@lru_cache(_CACHED)
def _of_key(key: str) -> TenantName:
    kind, colon, identifier = key.partition(":")
    for known in _IDENTIFIERS:
        if colon and kind == known:
            return TenantName(known, identifier)
    namespace, _, name = key.rpartition("/")
    return TenantName(TenantKind.LOCAL_POD, namespace=namespace, name=name)
