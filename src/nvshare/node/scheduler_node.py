"""The parts of the scheduler daemon, put together. Each part owns its own state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nvshare.core.effects import Refused
from nvshare.gpu.inventory import Inventory
from nvshare.node.admission import Admission
from nvshare.node.bounds import Bounds
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.drains import Drains
from nvshare.node.gpu_registry import GpuRegistry
from nvshare.node.journal import Entry, Journal
from nvshare.node.limits import LimitUpdates
from nvshare.node.members import Members
from nvshare.node.registration import Registration
from nvshare.node.termination import Terminations
from nvshare.pods.cgroups import Place
from nvshare.pods.tenancy import Tenancy

if TYPE_CHECKING:
    from nvshare.node.kubernetes_pods import KubernetesPods


class SchedulerNode:
    def __init__(
        self,
        dispatcher: Dispatcher,
        inventory: Inventory,
        tenancy: Tenancy,
        bounds: Bounds,
        own_place: Place,
        epoch: int,
    ) -> None:
        self.dispatcher = dispatcher
        self.tenancy = tenancy
        self.bounds = bounds
        self.epoch = epoch
        self.journal: Journal | None = None  # None until the previous state is restored
        self.drains = Drains()
        self.gpus = GpuRegistry(dispatcher, inventory, self.drains)
        self.kubernetes: KubernetesPods | None = None  # None: switched off
        self.limits = LimitUpdates(dispatcher, self.record, self.display)
        self.members = Members(dispatcher, bounds, tenancy, self.limits)
        self.terminations = Terminations(
            dispatcher, self.members.registered, self.members.expected, bounds.processes_ending
        )
        self.admission = Admission(self, own_place)
        self.registration = Registration(self)

    def display(self, pod: str) -> str:
        """What people call a pod; its key if they call two pods so."""
        name = pod if self.kubernetes is None else self.kubernetes.display(pod)
        return name if name == pod or not self.members.is_here(name) else pod

    def memory_refused(self, client: int, refused: Refused) -> None:
        """A client was refused memory beyond its pod's limit."""
        member = self.members.registered.get(client)
        if self.kubernetes is not None and member is not None and member.in_pod and refused.limit_bytes:
            self.kubernetes.memory_refused(member.pod, refused.asked_bytes, refused.limit_bytes)

    def record(self, entry: Entry) -> None:
        if self.journal is not None:
            self.journal.append(entry)

    def announce_end(self) -> None:
        """So that clients that wait for a GPU run on at once."""
        for connection in list(self.dispatcher.connections.values()):
            connection.announce_end()

    def close(self) -> None:
        members = self.members.registered.values()
        for connection in [*self.admission.unregistered, *(member.connection for member in members)]:
            if connection is not None:
                connection.abort()
