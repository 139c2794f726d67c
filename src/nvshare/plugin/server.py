"""The plugin's side of the device plugin interface, on a socket in the kubelet's directory.

1. Every answer comes from the tables; nothing here waits, except PreStartContainer, which may (rule 3), and
   ListAndWatch, which reports changes.
2. What cannot be answered is a gRPC error that names what is wrong.
3. A container is not started before the node has what it needs: the library, and the daemon's socket. After a
   reboot those may come later than the kubelet.
"""

from __future__ import annotations

import asyncio
import stat
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Final

from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server

from nvshare.plugin import allocate
from nvshare.plugin.allocate import AllocationError, Grant, Terms
from nvshare.plugin.devices import Devices, Policy
from nvshare.pods.kubelet import device_plugin_pb2 as messages
from nvshare.pods.kubelet.interface import DEVICE_PLUGIN, HEALTHY, UNHEALTHY, Served
from nvshare.runtime import logs

START_WAIT_SEC: Final = 25.0
"""The kubelet gives 30 s."""
_START_LOOK_SEC: Final = 0.1
SOCKET_MODE: Final = 0o600
"""The kubelet is root."""


class Answers:
    """What the methods of the interface return."""

    def __init__(
        self,
        devices: Devices,
        terms: Terms,
        needed: Collection[Path],
        policy: Callable[[], Policy],
        held: Callable[[], Collection[str]],
        allocated: Callable[[], None],
    ) -> None:
        """``needed``: files without which no container starts. ``allocated`` is called after an
        allocation.
        """
        self._devices = devices
        self._terms = terms
        self._needed = needed
        self._policy = policy
        self._held = held
        self._allocated = allocated
        self._streams: set[asyncio.Event] = set()
        self.results: Counter[str] = Counter({"ok": 0, "refused": 0})
        self.held_starts = 0
        self.start_wait_sec = START_WAIT_SEC

    @property
    def streams(self) -> int:
        """Open ListAndWatch calls: normally one, the kubelet's."""
        return len(self._streams)

    def changed(self) -> None:
        """A device's health has changed, or there are more."""
        for changed in self._streams:
            changed.set()

    def service(self) -> Served:
        return Served(
            DEVICE_PLUGIN,
            {
                "GetDevicePluginOptions": _answered(self._options),
                "ListAndWatch": self._list_and_watch,
                "GetPreferredAllocation": _answered(self.preferred),
                "Allocate": _answered(self.allocate),
                "PreStartContainer": _answered(self.pre_start),
            },
        )

    # ---- the methods ----------------------------------------------------------------------------

    async def _options(self, _request: messages.Empty) -> messages.DevicePluginOptions:
        return options()

    async def _list_and_watch(self, stream: Any) -> None:
        await stream.recv_message()
        changed = asyncio.Event()
        self._streams.add(changed)
        try:
            while True:
                changed.clear()
                await stream.send_message(self.listed())
                await changed.wait()
        finally:
            self._streams.discard(changed)

    async def preferred(
        self, request: messages.PreferredAllocationRequest
    ) -> messages.PreferredAllocationResponse:
        answer = messages.PreferredAllocationResponse()
        for wish in request.container_requests:
            available, required = wish.available_deviceIDs, wish.must_include_deviceIDs
            strange = sorted(set(required) - set(available))
            if strange:
                raise _refusal(f"device {strange[0]!r} must be included, but is not available")
            chosen = self._devices.preferred(
                available, required, wish.allocation_size, self._held(), self._policy()
            )
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def allocate(self, request: messages.AllocateRequest) -> messages.AllocateResponse:
        asked = [list(container.devices_ids) for container in request.container_requests]
        try:
            grants = allocate.grants(asked, self._devices, self._terms)
        except AllocationError as error:
            self.results["refused"] += 1
            logs.warning("allocation refused", why=error)
            raise _refusal(str(error)) from error
        self.results["ok"] += 1
        for ids in asked:
            logs.info("allocated", devices=",".join(ids))
        self._allocated()
        return messages.AllocateResponse(container_responses=map(_as_message, grants))

    async def pre_start(
        self, _request: messages.PreStartContainerRequest
    ) -> messages.PreStartContainerResponse:
        until = asyncio.get_running_loop().time() + self.start_wait_sec
        missing = _missing(self._needed)
        self.held_starts += bool(missing)
        while missing:
            if asyncio.get_running_loop().time() >= until:
                why = f"{missing} is not there yet, so the container would run without its limits"
                logs.warning("container start refused", why=why)
                hint = f"nvshare: {why}; is nvshare-scheduler running?"
                raise GRPCError(Status.UNAVAILABLE, hint)
            await asyncio.sleep(_START_LOOK_SEC)
            missing = _missing(self._needed)
        return messages.PreStartContainerResponse()

    def listed(self) -> messages.ListAndWatchResponse:
        answer = messages.ListAndWatchResponse()
        for device in self._devices.devices():
            row = answer.devices.add(ID=device.id, health=HEALTHY if device.healthy else UNHEALTHY)
            if device.numa_node is not None:
                row.topology.nodes.add(ID=device.numa_node)
        return answer


def _answered(method: Callable[[Any], Awaitable[Any]]) -> Callable[[Any], Awaitable[None]]:
    """A method with one answer to one request."""

    async def answer(stream: Any) -> None:
        request = await stream.recv_message()
        if request is not None:
            await stream.send_message(await method(request))

    return answer


def options() -> messages.DevicePluginOptions:
    return messages.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)


def _missing(needed: Iterable[Path]) -> Path | None:
    for path in needed:
        try:
            mode = path.stat().st_mode
        except OSError:
            return path
        if not (stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
            return path
    return None


def _refusal(why: str) -> GRPCError:
    return GRPCError(Status.INVALID_ARGUMENT, f"nvshare: {why}")


def _as_message(grant: Grant) -> messages.ContainerAllocateResponse:
    answer = messages.ContainerAllocateResponse(envs=grant.environment)
    for mount in grant.mounts:
        answer.mounts.add(**mount._asdict())
    for name in grant.cdi_devices:
        answer.cdi_devices.add(name=name)
    return answer


class PluginSocket:
    """A gRPC server on a socket, until it is closed."""

    def __init__(self, path: Path, answers: Answers) -> None:
        self._path = path
        self._answers = answers
        self._server: Server | None = None
        self._inode = -1

    async def open(self) -> None:
        """Raises OSError. Whatever has this name is replaced."""
        self.close()
        self._path.unlink(missing_ok=True)
        server = Server([self._answers.service()])
        await server.start(path=str(self._path))
        self._server = server
        self._path.chmod(SOCKET_MODE)
        self._inode = self._path.stat().st_ino

    def is_there(self) -> bool:
        """Whether the name that is registered still leads to it."""
        try:
            return self._server is not None and self._path.stat().st_ino == self._inode
        except OSError:
            return False

    def close(self) -> None:
        """Without waiting: requests that are under way are ended."""
        if self._server is not None:
            self._server.close()
            self._server = None
