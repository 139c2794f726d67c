"""The scheduler daemon: puts its parts together, restores the previous daemon's state, ends cleanly.

The order at start is settings, directories and their locks, GPUs, the previous state, sockets. So a client
that finds the socket finds a daemon that knows everything the previous one knew.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from nvshare.core import events
from nvshare.core.audit import EVERY_EVENT, SAMPLED, Checking
from nvshare.core.scheduler import Scheduler
from nvshare.gpu.inventory import Device, Inventory, parse_device_list
from nvshare.node import checkpoint, descriptors, journal, previous_state
from nvshare.node.audit_log import AuditLog
from nvshare.node.bounds import Bounds
from nvshare.node.checkpoint_saver import CheckpointSaver
from nvshare.node.config import Config
from nvshare.node.control import Control
from nvshare.node.control_access import ControlAccess
from nvshare.node.control_context import ControlContext
from nvshare.node.counters import Counters
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.kubernetes_setup import pod_source_maker
from nvshare.node.listening_sockets import CLIENTS, CONTROL, ListeningSocket
from nvshare.node.previous_state import PreviousState
from nvshare.node.problems import Cards
from nvshare.node.restore import restore
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.node.token import read_token, write_token
from nvshare.node.user_requests import Requests
from nvshare.pods.peer import own_place
from nvshare.pods.tenancy import Tenancy
from nvshare.runtime import logs
from nvshare.runtime.descriptors import raise_limit
from nvshare.runtime.errors import StartError
from nvshare.runtime.listener import Listener
from nvshare.runtime.loop_probe import LoopProbe
from nvshare.runtime.service import LAST_LINES_SEC, Service

if TYPE_CHECKING:
    from nvshare.node.kubernetes_setup import MakePodSource

_SOCKETS_CHECKED_SEC: Final = 1.0
_NVML_SEC: Final = 5.0


def find_gpus(text: str) -> Callable[[], Inventory]:
    """The GPUs that ``NVSHARE_GPUS`` stands for."""
    devices, believes = _known_gpus(text)
    return lambda: Inventory(devices, believes)


def _known_gpus(text: str) -> tuple[tuple[Device, ...], bool]:
    """The known GPUs, and whether clients may name others."""
    if text not in ("auto", "nvml"):
        return parse_device_list(text), False
    from nvshare.gpu import nvml  # loads NVIDIA's library, which a list makes needless

    try:
        return nvml.read_devices_within(_NVML_SEC), False
    except nvml.NvmlError as error:
        if text == "nvml":
            raise StartError(
                f"NVSHARE_GPUS=nvml, but {error}; accepted without NVML: auto or a list"
            ) from error
        logs.info("no NVML: any well-formed GPU UUID is accepted", why=error)
        return (), True


def how_checked(config: Config) -> Checking:
    """An inconsistency is reported; ending everybody's daemon over it would help nobody."""
    return EVERY_EVENT._replace(fatal=False) if config.switched_on("NVSHARE_CHECK") else SAMPLED


def _never_full() -> bool:
    """The clients' socket always accepts: a new silent connection pushes out another one."""
    return False


class Checkpoints(NamedTuple):
    """Of this daemon."""

    written: int
    failed: int
    age_ns: int  # of the last one written, or of the daemon


class Companion(Protocol):
    """Runs beside the daemon, on its loop, and knows it."""

    def start(self) -> None: ...

    def close(self) -> None: ...

    def cards(self) -> Cards:
        """What NVML reports on the GPUs."""
        ...


MakeCompanion = Callable[["Daemon"], Companion | None]


class Daemon(Service[Config]):
    node: SchedulerNode
    _writer: checkpoint.Writer
    _saver: CheckpointSaver
    _health: AuditLog
    _clients: ListeningSocket
    _control: ListeningSocket
    _next_check: asyncio.TimerHandle
    _make_pod_source: MakePodSource | None  # None: Kubernetes is switched off

    def __init__(
        self,
        config: Config,
        read_config: Callable[[], Config],
        make_companions: tuple[MakeCompanion, ...] = (),
        bounds: Bounds | None = None,
    ) -> None:
        super().__init__(config, read_config)
        self.bounds = bounds or Bounds()
        self._make_companions = make_companions
        self._companions: list[Companion] = []

    def prepare(self) -> None:
        self._make_pod_source = pod_source_maker(self.config, self.bounds)
        self.bounds = descriptors.within(self.bounds, raise_limit())
        self._control = ListeningSocket(self.config.private_dir, CONTROL, self.bounds.backlog)
        self._clients = ListeningSocket(self.config.sock_dir, CLIENTS, self.bounds.backlog)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        started_ns = time.monotonic_ns()
        self._start_node(loop)
        self._health = AuditLog(self.node.dispatcher.scheduler.health)
        self._writer = checkpoint.Writer(self.config.private_dir)
        self._saver = CheckpointSaver(self.node, self._writer, self.bounds.checkpoint_every_ns)
        made = (make(self) for make in self._make_companions)
        self._companions = [companion for companion in made if companion is not None]
        self._listen(started_ns)  # last: from now on somebody may be answered

    def started(self) -> None:
        dispatcher = self.node.dispatcher
        self._saver.save_again()
        probe = LoopProbe(dispatcher.loop, dispatcher.clock, dispatcher.counters.lag, self._probed)
        probe.start(dispatcher.clock())
        self._check_sockets()
        if self._make_pod_source is not None and self.node.kubernetes is not None:
            self.node.kubernetes.start(self._make_pod_source)
        for companion in self._companions:
            companion.start()
        logs.info(
            "daemon started",
            pid=os.getpid(),
            sock_dir=self.config.sock_dir,
            gpus=len(dispatcher.scheduler.gpus),
        )

    def stop(self) -> None:
        self._next_check.cancel()  # or it would make the sockets again
        if self.node.kubernetes is not None:
            self.node.kubernetes.close()
        for companion in self._companions:
            companion.close()
        dispatcher, node = self.node.dispatcher, self.node
        node.announce_end()
        self._clients.close()
        self._control.close()
        self._health.look(dispatcher.clock())
        self._saver.last()
        if not self._writer.drain(LAST_LINES_SEC):
            logs.warning("the last checkpoint is not on disk yet")
        dispatcher.stop()
        node.close()
        dispatcher.repeats.flush(at_end=True)
        logs.info("daemon ended")

    def apply(self) -> None:
        dispatcher = self.node.dispatcher
        now_ns = dispatcher.clock()
        self.node.terminations.on_unresponsive = self.config.text("NVSHARE_ON_UNRESPONSIVE")
        self.node.members.owners.take(self.config.users, self.node.members.registered.values())
        dispatcher.feed(events.SettingsChanged(self.config.core))
        if self.node.kubernetes is not None:
            self.node.kubernetes.take_settings(self.config)
        dispatcher.counters.callbacks.add(dispatcher.clock() - now_ns)

    def callback_raised(self, where: str, error: BaseException | None) -> None:
        self.node.dispatcher.note_bug(where, error)

    def _probed(self, now_ns: int) -> None:
        dispatcher = self.node.dispatcher
        dispatcher.probe(now_ns)
        self._health.look(now_ns)
        dispatcher.repeats.flush()

    def _start_node(self, loop: asyncio.AbstractEventLoop) -> None:
        """With the previous daemon's state, or with its limits alone, or with nothing."""
        devices, directory = find_gpus(self.config.text("NVSHARE_GPUS")), self.config.private_dir
        left = previous_state.load(directory, time.monotonic_ns())
        for attempt in (left, left.without_clients(), PreviousState(None, (), left.covered)):
            self._new_node(loop, devices())
            try:
                restore(self.node, attempt)
                break
            except Exception as error:  # it would end every start
                self.node.members.stop_watching_expected()
                stays = attempt is left
                checkpoint.give_up(directory, error, stays=stays)
                journal.set_aside(directory, repr(error), stays)
        self.node.journal = attempt.journal(directory, self.node.dispatcher.counters.events)

    def _new_node(self, loop: asyncio.AbstractEventLoop, inventory: Inventory) -> None:
        dispatcher = Dispatcher(Scheduler(self.config.core, how_checked(self.config)), loop, Counters())
        epoch = secrets.randbits(62) + 1
        self.node = SchedulerNode(
            dispatcher, inventory, Tenancy(self.bounds.runs), self.bounds, own_place(), epoch
        )
        self.node.terminations.on_unresponsive = self.config.text("NVSHARE_ON_UNRESPONSIVE")
        for device in inventory.devices():
            self.node.gpus.introduce_again(device)
        if self._make_pod_source is not None:
            from nvshare.node.kubernetes_pods import KubernetesPods

            self.node.kubernetes = KubernetesPods(self.node)
            self.node.kubernetes.take_settings(self.config)

    def _listen(self, started_ns: int) -> None:
        node, bounds = self.node, self.bounds
        token = read_token(self.config.private_dir)
        context = ControlContext(
            node=node,
            started_ns=started_ns,
            token=token,
            status=self._status,
            faults=self._faults,
            flush=self._saver.flush,
            cards=lambda: next((companion.cards() for companion in self._companions), None),
        )
        control_routes = Control(context)
        access = ControlAccess(node, control_routes.app(), bounds)
        node.members.owners.users = self.config.users
        if os.geteuid() == 0:
            requests = Requests(
                node.dispatcher, control_routes.users_app(), bounds, lambda: self.config.users
            )
            node.admission.take_request = requests.take
        loop, counters = node.dispatcher.loop, node.dispatcher.counters
        self._control.made_again = lambda: self._refill_private_dir(token)
        control = self._control.open(
            lambda listening: Listener(loop, listening, access.welcome, access.full, bounds, counters)
        )
        access.room_made = control.start
        clients = self._clients.open(
            lambda listening: Listener(loop, listening, node.admission.welcome, _never_full, bounds, counters)
        )
        clients.start()
        control.start()

    def _refill_private_dir(self, token: str) -> None:
        self.node.dispatcher.changed = True  # for the checkpoint
        write_token(self.config.private_dir, token)

    def unreachable(self) -> str:
        """The reason why new clients cannot reach the daemon; empty if they can."""
        return self._clients.error or self._control.error

    def _faults(self) -> list[str]:
        found = [f"the checkpoint cannot be written: {self._writer.error}"] if self._writer.error else []
        if self.node.journal is not None and self.node.journal.error:
            found.append(f"the journal cannot be written: {self.node.journal.error}")
        if self.node.kubernetes is not None:
            found += self.node.kubernetes.faults()
        return found + [listening.error for listening in (self._clients, self._control) if listening.error]

    def _check_sockets(self) -> None:
        dispatcher = self.node.dispatcher
        now_ns = dispatcher.clock()
        self._clients.look()
        self._control.look()
        dispatcher.counters.callbacks.add(dispatcher.clock() - now_ns)
        self._next_check = dispatcher.loop.call_later(_SOCKETS_CHECKED_SEC, self._check_sockets)

    def _status(self) -> dict[str, object]:
        return {
            "sock_dir": str(self.config.sock_dir),
            "private_dir": str(self.config.private_dir),
            "checkpoints_written": self._writer.written,
            "checkpoints_failed": self._writer.failed,
            "checkpoint_current": self._saver.current(),
            "checkpoint_age_ns": self.checkpoints().age_ns,
        }

    def checkpoints(self) -> Checkpoints:
        """How many were written, and how old the last one is."""
        age_ns = time.monotonic_ns() - self._writer.written_ns
        return Checkpoints(self._writer.written, self._writer.failed, age_ns)
