"""The daemon: puts the parts together, answers signals, ends cleanly.

Order at start: settings, directories and their locks, GPUs, the former life, sockets. Clients that find the
socket find a daemon that knows what the last one knew.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import re
import secrets
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import uvloop

from nvshare.core import events
from nvshare.core.audit import EVERY_EVENT, SAMPLED, Checking
from nvshare.core.scheduler import Scheduler
from nvshare.gpu.inventory import Device, GpuError, Inventory, parse_device_list
from nvshare.node import checkpoint, descriptors, directories, files, former_life, journal, logs
from nvshare.node.bounds import Bounds
from nvshare.node.config import Config, as_far_as_live, changed_live, needs_restart
from nvshare.node.control import Control, Desk
from nvshare.node.counters import Counters
from nvshare.node.doors import CLIENTS, CONTROL, Door
from nvshare.node.former_life import FormerLife
from nvshare.node.gate import Gate
from nvshare.node.health import HealthWatch
from nvshare.node.hub import PROBE_NS, Hub
from nvshare.node.listener import Listener
from nvshare.node.reloading import Reloader
from nvshare.node.requests import Requests
from nvshare.node.roster import Roster
from nvshare.node.saving import Saver
from nvshare.node.verdict import Cards
from nvshare.pods.identity import Process, own_place
from nvshare.pods.tenancy import Tenancy

EXIT_OK: Final = 0
EXIT_BAD_INPUT: Final = 2
EXIT_TAKEN: Final = 4
TOKEN_FILE: Final = "token"
_DOORS_SEC: Final = 1.0
_NVML_SEC: Final = 5.0
_LAST_WORDS_SEC: Final = 0.5
_SWITCH_INTERVAL_SEC: Final = 0.0005
_TOKEN_BYTES_MAX: Final = 4096
_TOKEN: Final = re.compile("[!-~]+")
_GC_THRESHOLD: Final = (20_000, 20, 50)


class StartError(Exception):
    """The daemon cannot start as it is told to."""


def find_gpus(text: str) -> Callable[[], Inventory]:
    """The GPUs that ``NVSHARE_GPUS`` tells of."""
    devices, believes = _known_gpus(text)
    return lambda: Inventory(devices, believes)


def _known_gpus(text: str) -> tuple[tuple[Device, ...], bool]:
    """Those that are known, and whether clients may name others."""
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
    """A difference in the books is told; ending everybody's daemon over it would help nobody."""
    return EVERY_EVENT._replace(fatal=False) if config.switched_on("NVSHARE_CHECK") else SAMPLED


def read_token(directory: Path) -> str:
    """The secret that lets a browser in later; made once, kept over restarts."""
    path = directory / TOKEN_FILE
    try:
        token = files.read(path, _TOKEN_BYTES_MAX).decode("ascii", "replace").strip()
        if _TOKEN.fullmatch(token):
            return token
        logs.warning("token replaced", file=path, why="it is not a token")
    except FileNotFoundError:
        pass
    except files.Unusable as error:
        logs.warning("token replaced", file=path, why=error)
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from error
    token = secrets.token_urlsafe(32)
    try:
        files.write(path, f"{token}\n".encode())
    except OSError as error:
        raise StartError(f"{path} cannot be written: {error.strerror}") from error
    return token


def _never_full() -> bool:
    """Of clients' connections: for one more that is silent, another one goes."""
    return False


class Checkpoints(NamedTuple):
    """Of this daemon."""

    written: int
    failed: int
    age_ns: int  # of the last that was written, or of the daemon


class Service(Protocol):
    """What runs beside the daemon, on its loop, and knows it."""

    def start(self) -> None: ...

    def close(self) -> None: ...

    def cards(self) -> Cards:
        """What NVML says of the GPUs."""
        ...


@dataclass(slots=True)
class Daemon:
    config: Config
    reload: Callable[[], Config]
    services: tuple[Callable[[Daemon], Service | None], ...] = ()
    bounds: Bounds = field(default_factory=Bounds)
    roster: Roster = field(init=False)
    _writer: checkpoint.Writer = field(init=False)
    _saver: Saver = field(init=False)
    _health: HealthWatch = field(init=False)
    _ended: asyncio.Event = field(init=False)
    _clients: Door = field(init=False)
    _control: Door = field(init=False)

    def run(self) -> int:
        """Until a signal ends it; the exit code."""
        handler = logs.start(self.config.log_level, self.config.text("NVSHARE_LOG_FORMAT"))
        self.bounds = descriptors.within(self.bounds, descriptors.raise_limit())
        try:
            self._control = Door(self.config.private_dir, CONTROL, self.bounds.backlog)
            self._clients = Door(self.config.sock_dir, CLIENTS, self.bounds.backlog)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except directories.DirectoryTaken as error:
            logs.event(logging.ERROR, str(error))
            return EXIT_TAKEN
        except (directories.DirectoryError, StartError) as error:
            logs.event(logging.ERROR, str(error))
            return EXIT_BAD_INPUT
        finally:
            handler.drain(_LAST_WORDS_SEC)
        return EXIT_OK

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._bug)
        started_ns = time.monotonic_ns()
        self._ended = asyncio.Event()
        self._start_roster(loop)
        hub = self.roster.hub
        self._health = HealthWatch(hub.scheduler.health)
        self._writer = checkpoint.Writer(self.config.private_dir)
        self._saver = Saver(self.roster, self._writer, self.bounds.checkpoint_every_ns)
        services = [service for make in self.services if (service := make(self)) is not None]
        self._listen(started_ns, services)  # last: from now on somebody may be answered
        self._watch_signals(loop)
        for warning in self.config.warnings:
            logs.warning(warning)
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLD)
        sys.setswitchinterval(_SWITCH_INTERVAL_SEC)
        self._saver.save_again()
        self._probe(time.monotonic_ns())
        self._watch_doors()
        for service in services:
            service.start()
        logs.info(
            "daemon started", pid=os.getpid(), sock_dir=self.config.sock_dir, gpus=len(hub.scheduler.gpus)
        )
        await self._ended.wait()
        for service in services:
            service.close()
        self._end()

    def _start_roster(self, loop: asyncio.AbstractEventLoop) -> None:
        """With what the former daemon left, if that can be used; else with the limits that it left."""
        devices, directory = find_gpus(self.config.text("NVSHARE_GPUS")), self.config.private_dir
        left = former_life.load(directory, time.monotonic_ns())
        for former in (left, left.without_clients(), FormerLife(None, (), left.covered)):
            self._new_roster(loop, devices())
            try:
                self._restore(former)
                break
            except Exception as error:  # what it tripped over would end every start
                self.roster.forget_formers()
                nothing_left = former is not left
                checkpoint.give_up(directory, error, stays=not nothing_left)
                journal.set_aside(directory, repr(error), not nothing_left)
        self.roster.journal = former.journal(directory, self.roster.hub.counters.events)

    def _new_roster(self, loop: asyncio.AbstractEventLoop, inventory: Inventory) -> None:
        hub = Hub(Scheduler(self.config.core, how_checked(self.config)), loop, Counters())
        epoch = secrets.randbits(62) + 1
        self.roster = Roster(hub, inventory, Tenancy(), self.bounds, own_place(), epoch)
        self.roster.terminations.on_unresponsive = self.config.text("NVSHARE_ON_UNRESPONSIVE")
        for device in inventory.devices():
            hub.feed(events.GpuSeen(device.key, device.total_bytes, device.number))

    def _listen(self, started_ns: int, services: list[Service]) -> None:
        roster, bounds = self.roster, self.bounds
        token = read_token(self.config.private_dir)
        desk = Desk(
            roster=roster,
            started_ns=started_ns,
            token=token,
            status=self._status,
            faults=self._faults,
            kept=self._saver.kept,
            cards=lambda: next((service.cards() for service in services), None),
        )
        control_routes = Control(desk)
        gate = Gate(roster, control_routes.app(), bounds)
        roster.owners.users = self.config.users
        if os.geteuid() == 0:
            requests = Requests(roster.hub, control_routes.users_app(), bounds, lambda: self.config.users)
            roster.take_request = requests.take
        loop, counters = roster.hub.loop, roster.hub.counters
        self._control.made_again = lambda: self._refill_private_dir(token)
        control = self._control.open(
            lambda listening: Listener(loop, listening, gate.welcome, gate.full, bounds, counters)
        )
        gate.room_made = control.start
        clients = self._clients.open(
            lambda listening: Listener(loop, listening, roster.welcome, _never_full, bounds, counters)
        )
        clients.start()
        control.start()

    def _refill_private_dir(self, token: str) -> None:
        self.roster.hub.changed = True  # for the checkpoint
        files.write(self.config.private_dir / TOKEN_FILE, f"{token}\n".encode())

    def unreachable(self) -> str:
        """Why nobody new can reach us; empty if everybody can."""
        return self._clients.error or self._control.error

    def _faults(self) -> list[str]:
        found = [f"the checkpoint cannot be written: {self._writer.error}"] if self._writer.error else []
        if self.roster.journal is not None and self.roster.journal.error:
            found.append(f"the journal cannot be written: {self.roster.journal.error}")
        return found + [door.error for door in (self._clients, self._control) if door.error]

    def _watch_doors(self) -> None:
        hub = self.roster.hub
        now_ns = hub.clock()
        self._clients.look()
        self._control.look()
        hub.counters.callbacks.add(hub.clock() - now_ns)
        hub.loop.call_later(_DOORS_SEC, self._watch_doors)

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
        """What became of them."""
        age_ns = time.monotonic_ns() - self._writer.written_ns
        return Checkpoints(self._writer.written, self._writer.failed, age_ns)

    # ---- the former life ---------------------------------------------------------------------

    def _restore(self, left: FormerLife) -> None:
        roster, hub, saved = self.roster, self.roster.hub, left.saved
        if saved is None:
            return
        known = {c.gpu for c in saved.clients} | {gpu for _, gpu, _ in saved.lags}
        known |= {gpu for _, gpu, _ in saved.departed} | {gpu for _, gpu, _, _ in saved.present}
        known |= set(saved.draining)
        for gpu in known:
            for device in self._known_again(gpu):
                hub.feed(events.GpuSeen(device.key, device.total_bytes, device.number))
        alive = [m for m in checkpoint.members_of(saved) if m.gpu in hub.scheduler.gpus and roster.expect(m)]
        hub.feed(events.Restored(checkpoint.core_part(saved, alive)))
        for gpu in saved.draining:
            roster.drains.begin(gpu)
        for pid, start_ticks, run in saved.runs:
            roster.runs.restore(Process(pid, start_ticks), run)
        logs.info(
            "state of the previous daemon restored",
            clients=len(alive),
            dead=len(saved.clients) - len(alive),
            limits=len(saved.limits),
        )

    def _known_again(self, gpu: str) -> list[Device]:
        try:
            return self.roster.inventory.resolve(gpu)
        except GpuError:
            return []  # taken out of the machine, or of the list, since

    # ---- signals, ends, watching ourselves ---------------------------------------------------

    def _watch_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        reloader = Reloader(loop, self.reload, self._take_settings, self._keep_settings)
        loop.add_signal_handler(signal.SIGHUP, reloader.ask)

    def _take_settings(self, new: Config) -> None:
        hub = self.roster.hub
        now_ns = hub.clock()
        for variable in needs_restart(self.config, new):
            logs.warning("setting needs a restart", variable=variable, value=new.text(variable))
        changed = {variable: new.text(variable) for variable in changed_live(self.config, new)}
        self.config = as_far_as_live(self.config, new)
        logs.change(self.config.log_level, self.config.text("NVSHARE_LOG_FORMAT"))
        self.roster.terminations.on_unresponsive = self.config.text("NVSHARE_ON_UNRESPONSIVE")
        self.roster.owners.take(self.config.users, self.roster.members.values())
        hub.feed(events.SettingsChanged(self.config.core))
        logs.info("settings reloaded", **changed)
        hub.counters.callbacks.add(hub.clock() - now_ns)

    def _keep_settings(self, error: Exception) -> None:
        logs.event(logging.ERROR, "settings not reloaded: the old ones stay in force", why=error)

    def _probe(self, expected_ns: int) -> None:
        """How late the loop is to a timer that asks for nothing special."""
        hub = self.roster.hub
        now_ns = hub.clock()
        hub.counters.lag.add(max(0, now_ns - expected_ns))
        hub.probe(now_ns)
        self._health.look(now_ns)
        hub.repeats.flush()
        hub.loop.call_later(PROBE_NS / 1e9, self._probe, now_ns + PROBE_NS)

    def _bug(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A callback raised: one connection's trouble, told and counted, never everybody's end."""
        del loop
        self.roster.hub.note_bug(str(context.get("message", "")), context.get("exception"))

    def _end(self) -> None:
        hub, roster = self.roster.hub, self.roster
        roster.say_ending()
        self._clients.close()
        self._control.close()
        self._health.look(hub.clock())
        self._saver.last()
        if not self._writer.drain(_LAST_WORDS_SEC):
            logs.warning("the last checkpoint is not on disk yet")
        hub.stop()
        roster.close()
        hub.repeats.flush(at_end=True)
        logs.info("daemon ended")
