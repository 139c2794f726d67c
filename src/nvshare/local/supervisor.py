"""A node for one machine: its GPUs or simulated ones, and a daemon that is kept alive.

1. The daemon is a child process. It ends with us, however we end. If it dies by itself it is started again, a
   bounded number of times a minute; programs survive that like any restart.
2. Real GPUs are used if NVML reports any, else simulated ones, or on demand; the latter is always said.
3. Nothing of a node outlives it, except what the daemon keeps for the next one: checkpoint and token.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from logging import INFO, LogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Final

from nvshare.client.control import ControlClient, NoDaemon
from nvshare.gpu import nvml
from nvshare.local.machine_node import MachineNode, machine_node
from nvshare.local.ports import metrics_settings, was_taken_meanwhile
from nvshare.local.simulated_cards import make_cards
from nvshare.local.state import (
    NodeState,
    Simulated,
    forget_failure,
    lock_node,
    node_directory,
    write_state,
)
from nvshare.node.users import Users
from nvshare.pods.peer import process_of
from nvshare.runtime import directories
from nvshare.runtime.own_modules import module_command
from nvshare.sim.gpu import SimulatorError, check_cards

DEFAULT_CARDS: Final = "t4:2"
READY_SEC: Final = 60
END_SEC: Final = 10
RESTARTS_PER_MINUTE: Final = 3
_POLL_SEC: Final = 0.02
_PORT_ATTEMPTS_MAX: Final = 10
_LOG_LINES: Final = 50
_LOG_BYTES_MAX: Final = 1 << 20
_PR_SET_PDEATHSIG: Final = 1
_NVML: Final = "libnvidia-ml.so.1"
_NVML_SEC: Final = 10.0
_NONE: Final = "no real GPU was found here"
_STAMP: Final = re.compile(r"^[0-9-]{10}T[0-9:.]+Z (ERROR|WARNING|INFO|DEBUG) ")
_OF_SIMULATED: Final = ("NVSHARE_SIM", "NVSHARE_SIM_DIR")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class NodeError(Exception):
    """The node cannot start as requested; ``code`` is the exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class _KilledAtStartError(NodeError):
    """A signal ended the daemon before it answered; its settings are not at fault."""


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The options of a node."""

    sock_dir: Path
    private_dir: Path
    cards: str | None = None  # None: real GPUs if there are any
    settings: Mapping[str, str] = field(default_factory=dict)  # variables for the daemon
    users: Users = field(default_factory=Users)  # of root's node

    @property
    def serves_users(self) -> bool:
        return os.geteuid() == 0 and self.users.anybody()

    @property
    def sim_directory(self) -> Path:
        if self.serves_users:
            return self.sock_dir.with_name(f"{self.sock_dir.name}-sim")
        return node_directory(self.private_dir) / "sim"


def _why_no_real_gpus() -> str:
    """Empty if NVML reports GPUs that are not simulated by us."""
    try:
        library = ctypes.CDLL(_NVML)
    except OSError as error:
        absent = str(error).startswith(f"{_NVML}: cannot open shared object file")
        return _NONE if absent else f"NVML is installed but cannot be loaded ({error})"
    if hasattr(library, nvml.SIMULATED_SYMBOL):
        return _NONE
    try:
        return "" if nvml.read_devices_within(_NVML_SEC) else _NONE
    except nvml.NvmlError as error:
        return f"NVML is installed but fails ({error})"


def _simulate(plan: NodePlan, cards: str) -> Simulated:
    users = plan.users if plan.serves_users else None
    try:
        check_cards(cards)
        return make_cards(plan.sim_directory, cards, plan.private_dir, users)
    except (SimulatorError, directories.DirectoryError, OSError) as error:
        raise NodeError(f"no simulated GPUs: {error}", 2) from error


class _LogFile(RotatingFileHandler):
    """Drops lines that cannot be written, for example to a full disk, without a message on the terminal."""

    def handleError(self, record: LogRecord) -> None:  # noqa: N802 - logging's own name
        del record

    def close(self) -> None:
        with contextlib.suppress(OSError):
            super().close()


class _DaemonLog:
    """The daemon's log: a bounded file, and its last lines for messages."""

    def __init__(self, path: Path) -> None:
        self.last: deque[str] = deque(maxlen=_LOG_LINES)
        self._file = _LogFile(path, maxBytes=_LOG_BYTES_MAX, backupCount=1)
        self._threads: list[threading.Thread] = []

    def follow(self, stream: IO[str]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(threading.Thread(target=self._read, args=(stream,), daemon=True))
        self._threads[-1].start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.last.append(line.rstrip("\n"))
                self._file.handle(LogRecord("daemon", INFO, "", 0, line.rstrip("\n"), None, None))

    def finish(self) -> None:
        """Wait until the log is complete."""
        for thread in self._threads:
            thread.join(END_SEC)

    def close(self) -> None:
        self.finish()
        self._file.close()


def plain_words(line: str) -> str:
    """A line of the daemon's log without time and level, as part of a message."""
    with contextlib.suppress(ValueError, TypeError, KeyError):
        return str(json.loads(line)["event"])
    return _STAMP.sub("", line)


def end_with_parent() -> None:
    """In a child, before it becomes another program."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Node:
    """A node that is up between ``start`` and ``stop``."""

    def __init__(self, plan: NodePlan) -> None:
        self.plan = plan
        self.control = ControlClient(plan.private_dir)
        self.restarts = 0
        self.metrics: dict[str, str] = {}
        self.why_simulated = ""  # although it was not requested
        self.machine: MachineNode | None = None  # root's node, if we are a plain user
        self._restarted_at: deque[float] = deque(maxlen=RESTARTS_PER_MINUTE)
        self._simulated: Simulated | None = None
        self._daemon: subprocess.Popen[str] | None = None
        self._log: _DaemonLog | None = None
        self._lock = -1

    @property
    def simulated(self) -> Simulated | None:
        return self._simulated

    @property
    def daemon_pid(self) -> int:
        assert self._daemon is not None
        return self._daemon.pid

    def start(self) -> None:
        """Returns when the daemon answers. Raises NodeError and leaves nothing behind."""
        try:
            self._lock = lock_node(self.plan.private_dir)
            forget_failure(self.plan.private_dir)
        except directories.DirectoryTaken as error:
            whose = f" with pid {error.pid}" if error.pid else ""
            raise NodeError(
                f"a node{whose} is up already; `nvshare down` ends it, `nvshare ctl clients` shows its users",
                4,
            ) from error
        except directories.DirectoryError as error:
            raise NodeError(f"{error}{_user_hint()}", 2) from error
        try:
            self._start()
        except OSError as error:
            self.stop()
            what = error.filename or self.plan.private_dir
            raise NodeError(f"{what} cannot be written: {error.strerror}", 2) from error
        except BaseException:
            self.stop()
            raise

    def _start(self) -> None:
        plan = self.plan
        if plan.cards is None:
            self.why_simulated = _why_no_real_gpus()
        if plan.cards is not None or self.why_simulated:
            cards = DEFAULT_CARDS if plan.cards is None else plan.cards
            self._simulated = _simulate(plan, cards)
        self.machine = machine_node()
        if self._simulated is None and self.machine is not None:
            self._leave_real_gpus_to(self.machine)
        self._log = _DaemonLog(node_directory(plan.private_dir) / "daemon.log")
        self.metrics = metrics_settings({**os.environ, **plan.settings})
        self._start_daemon()
        own = process_of(os.getpid())
        assert own is not None
        state = NodeState(own.pid, own.start_ticks, str(plan.sock_dir), self._simulated)
        write_state(plan.private_dir, state)

    def _leave_real_gpus_to(self, machine: MachineNode) -> None:
        """Two nodes on one GPU would not know of each other."""
        if machine.may_serve(frozenset(device.key for device in nvml.read_devices_within(_NVML_SEC))):
            uses = "`nvshare run` uses it" if machine.permitted else "`nvshare run` says how to be let in"
            raise NodeError(
                f"root's node serves the GPUs of this machine, and two nodes on one GPU would not share it:"
                f" {uses}; `nvshare up --sim {DEFAULT_CARDS}` makes a node of simulated GPUs",
                4,
            )

    def _environment(self) -> dict[str, str]:
        inherited = {name: text for name, text in os.environ.items() if name not in _OF_SIMULATED}
        environment = {**inherited, **self.plan.settings, **self.metrics}
        if self._simulated is not None:
            environment |= self._simulated.environment(environment)
        return environment

    def _start_daemon(self) -> None:
        """On another port for metrics if the chosen one was taken meanwhile."""
        for _ in range(_PORT_ATTEMPTS_MAX):
            try:
                self._start_process()
                return
            except NodeError as error:
                port = was_taken_meanwhile(self.metrics, str(error))
                if port is None:
                    raise
                self.metrics = metrics_settings({}, port + 1)
        raise NodeError("every free port for metrics was taken by others before the daemon could use it", 1)

    def _start_process(self) -> None:
        plan = self.plan
        command = module_command("nvshare", "scheduler", "--gpus", "nvml")
        command += ["--sock-dir", str(plan.sock_dir), "--private-dir", str(plan.private_dir)]
        self._daemon = subprocess.Popen(
            command,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,  # we handle Ctrl-C ourselves
            preexec_fn=end_with_parent,
        )
        assert self._log is not None
        assert self._daemon.stderr is not None
        self._log.follow(self._daemon.stderr)
        self._wait_ready(self._daemon)

    def _wait_ready(self, daemon: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + READY_SEC
        while True:
            with contextlib.suppress(NoDaemon):
                if self.control.ask("GET", "/v1/status")["pid"] == daemon.pid:
                    return
            code = daemon.poll()
            if code is not None:
                assert self._log is not None
                self._log.finish()
                kind = NodeError if code > 0 else _KilledAtStartError
                raise kind(f"the daemon did not start: {self.last_words()}", code if code > 0 else 1)
            if time.monotonic() > deadline:
                raise NodeError(f"the daemon does not answer after {READY_SEC} s: {self.last_words()}", 1)
            time.sleep(_POLL_SEC)

    def last_words(self) -> str:
        assert self._log is not None
        return plain_words(self._log.last[-1]) if self._log.last else "it said nothing"

    def watch(self, seconds: float, wake: int = -1) -> None:
        """Keep the daemon alive for this long, or until ``wake`` is readable. Raises NodeError."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            assert self._daemon is not None
            if self._daemon.poll() is not None:
                self._start_again()
                continue
            pidfd = os.pidfd_open(self._daemon.pid)
            try:
                ready, _, _ = select.select([pidfd, *([wake] if wake >= 0 else [])], [], [], left)
            finally:
                os.close(pidfd)
            if wake in ready:
                return

    def _start_again(self) -> None:
        assert self._daemon is not None
        code = self._daemon.wait()
        now = time.monotonic()
        if len(self._restarted_at) == RESTARTS_PER_MINUTE and now - self._restarted_at[0] < 60:
            raise NodeError(
                f"the daemon ended {RESTARTS_PER_MINUTE + 1} times within a minute, last with code {code}:"
                f" {self.last_words()}",
                1,
            )
        self._restarted_at.append(now)
        self.restarts += 1
        with contextlib.suppress(_KilledAtStartError):  # the next check finds and counts it
            self._start_daemon()

    def stop(self) -> None:
        """End the daemon and remove the node's files."""
        if self._daemon is not None and self._daemon.poll() is None:
            self._daemon.terminate()
            try:
                self._daemon.wait(END_SEC)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
        if self._log is not None:
            self._log.close()
        if self._lock >= 0:
            shutil.rmtree(node_directory(self.plan.private_dir), ignore_errors=True)
            if self._simulated is not None:
                shutil.rmtree(self.plan.sim_directory, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _user_hint() -> str:
    if os.geteuid() == 0 or os.environ.get("XDG_RUNTIME_DIR"):
        return ""
    return "; as a plain user set XDG_RUNTIME_DIR, or NVSHARE_SOCK_DIR and NVSHARE_PRIVATE_DIR"
