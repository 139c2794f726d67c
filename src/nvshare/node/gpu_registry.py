"""The GPUs that clients may name, and those that the core knows."""

from __future__ import annotations

from nvshare.core import events
from nvshare.gpu.inventory import Device, GpuError, Inventory
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.drains import Drains
from nvshare.wire.dialects import V3


class GpuRegistry:
    def __init__(self, dispatcher: Dispatcher, inventory: Inventory, drains: Drains) -> None:
        self._dispatcher = dispatcher
        self._drains = drains
        self.inventory = inventory

    def resolve(self, text: str, version: int, owner: str) -> Device:
        """The GPU that a client of this protocol version names. Raises GpuError."""
        try:
            devices = self.inventory.resolve(text, owner)
        except GpuError as error:
            if error.reason != "too_many_gpus" or not self._forget_unused():
                raise
            devices = self.inventory.resolve(text, owner)
        if len(devices) > 1 and version >= V3.version:
            raise GpuError("several_gpus")  # our library has a connection for each GPU
        return devices[0]

    def introduce(self, device: Device) -> None:
        """Make the GPU known to the core."""
        if device.key not in self._dispatcher.scheduler.gpus:
            self.introduce_again(device)

    def introduce_again(self, device: Device) -> None:
        """The core learns what is new about a GPU."""
        self._dispatcher.feed(events.GpuSeen(device.key, device.total_bytes, device.number))

    def _forget_unused(self) -> bool:
        """Forget GPUs that clients made up and have left; whether there were any."""
        believed = [key for key in self.inventory.believed() if key not in self._drains]
        unused = [key for key in believed if self._dispatcher.forget_gpu(key)]
        for key in unused:
            self.inventory.forget(key)
        return bool(unused)
