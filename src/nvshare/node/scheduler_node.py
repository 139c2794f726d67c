"""The parts of the scheduler daemon, put together. Each part owns its own state."""

from __future__ import annotations

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
        self.limits = LimitUpdates(dispatcher, self.record)
        self.members = Members(dispatcher, bounds, tenancy, self.limits)
        self.terminations = Terminations(
            dispatcher, self.members.registered, self.members.expected, bounds.processes_ending
        )
        self.admission = Admission(self, own_place)
        self.registration = Registration(self)

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
