"""A daemon in its own directory and clients that speak bytes, for tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Self

from nvshare.client.control import ControlClient
from nvshare.wire.codec import Decoder, encode
from nvshare.wire.dialects import V3, Dialect
from nvshare.wire.messages import Message, MessageType
from tests.fork_server import ROOT, ForkedProcess

PATIENCE_SEC: Final = 60
"""How long a test waits for what must come; a slow machine is no failure."""
T = MessageType


def gpu_key(number: int = 0) -> str:
    return f"GPU-00000000-0000-0000-0000-{number:012}"


class Raw:
    """A client that sends what it is told and reads what comes."""

    def __init__(self, path: Path, dialect: Dialect = V3) -> None:
        self.dialect = dialect
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))  # waits while the backlog is full, which a timeout would not
        self.socket.settimeout(PATIENCE_SEC)
        self.decoder = Decoder(dialect)
        self.heard: list[Message] = []
        self.client_id = 0
        self.epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, kind: MessageType, **fields: Any) -> None:
        self.socket.sendall(encode(Message(kind, **fields), self.dialect))

    def register(self, pod: str = "", gpu: str = gpu_key(), namespace: str = "default") -> Message:
        self.send(T.REGISTER, pod_name=pod, pod_namespace=namespace, gpu_uuid=gpu, host_pid=os.getpid())
        answer = self.expect(T.SCHED_ON, T.SCHED_OFF, T.REFUSED)
        if answer.type is not T.REFUSED:
            self.client_id = int(answer.data, 16)
            if self.dialect is V3:
                self.epoch = self.expect(T.KEEP_ALIVE).arguments[1]
        return answer

    def resume(self, former: Raw, **changes: int) -> Message:
        figures = {
            "epoch": former.epoch,
            "held_ns": 0,
            "busy_ns": 0,
            "allocated_bytes": 0,
            "request_seq": 0,
            "reserve_seq": 0,
            "reserve_bytes": 0,
            "worked_ns": 0,
            **changes,
        }
        self.send(T.RESUME, id=former.client_id, gpu_uuid="", arguments=tuple(figures.values()))
        answer = self.expect(T.RESUMED, T.REFUSED)
        if answer.type is T.RESUMED:
            self.client_id, self.epoch = answer.id, answer.arguments[0]
        return answer

    def expect(self, *kinds: MessageType) -> Message:
        """The next message of one of these kinds; what comes before it is remembered."""
        while True:
            message = self.next()
            if message.type in kinds:
                return message

    def next(self) -> Message:
        while not self.heard:
            data = self.socket.recv(65_536)
            if not data:
                raise EOFError("the daemon ended the connection")
            self.heard += self.decoder.feed(data)
        return self.heard.pop(0)

    def ended(self) -> bool:
        """Wait for the end of the connection."""
        try:
            while self.next():
                pass
        except (EOFError, ConnectionResetError):
            return True

    def lock(self) -> None:
        self.send(T.REQ_LOCK)
        self.expect(T.LOCK_OK)

    def cycle(self) -> None:
        self.lock()
        self.send(T.LOCK_RELEASED)

    def round_trip(self, seq: int = 7) -> int:
        """Until everything sent before is dealt with; the daemon's epoch."""
        self.send(T.KEEP_ALIVE, arguments=(seq, 0))
        while True:
            answer = self.expect(T.KEEP_ALIVE)
            if answer.arguments[0] == seq:
                return answer.arguments[1]


class DaemonProcess:
    """``nvshare scheduler`` as a process of its own."""

    def __init__(self, directory: Path, *, bounds: dict[str, int] | None = None, **options: Any) -> None:
        self.sock_dir, self.private_dir = directory / "s", directory / "p"
        self.path = self.sock_dir / "scheduler.sock"
        self.control = ControlClient(self.private_dir)
        self.log: list[str] = []
        self._bounds = bounds or {}
        self._options = options
        self._opened: list[Raw] = []
        self.process: subprocess.Popen[str] | ForkedProcess | None = None
        self._stderr: IO[str] | None = None
        self._change = threading.Condition()
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        environment = {name: text for name, text in os.environ.items() if not name.startswith("NVSHARE_")}
        environment |= {"NVSHARE_CHECK": "1"} | self._options.get("environment", {})
        flags = ["--sock-dir", str(self.sock_dir), "--private-dir", str(self.private_dir)]
        arguments = [json.dumps(self._bounds), *self._options.get("directories", flags)]
        arguments += self._options.get("arguments", [])
        self.process, self._stderr = self._start(arguments, environment)
        started = sum("daemon started" in line for line in self.log)
        self._reader = threading.Thread(target=self._read, args=(self._stderr,), daemon=True)
        self._reader.start()
        self.wait_log(lambda lines: sum("daemon started" in line for line in lines) > started)

    def _start(
        self, arguments: list[str], environment: dict[str, str]
    ) -> tuple[subprocess.Popen[str] | ForkedProcess, IO[str]]:
        """The process, and its standard error."""
        module = self._options.get("module", "tests.node.run_daemon")
        if "prefix" not in self._options and "preexec_fn" not in self._options:
            reading, writing = os.pipe()
            try:
                process = ForkedProcess(module, arguments, environment, sys.stdout.fileno(), writing)
            finally:
                os.close(writing)
            return process, open(reading)
        executed = subprocess.Popen(
            [*self._options.get("prefix", []), sys.executable, "-m", module, *arguments],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            preexec_fn=self._options.get("preexec_fn"),
        )
        assert executed.stderr is not None
        return executed, executed.stderr

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            with self._change:
                self.log.append(line.rstrip("\n"))
                self._change.notify_all()
        with self._change:
            self.log.append("(end of the log)")
            self._change.notify_all()

    def wait_log(self, found: Callable[[list[str]], bool]) -> None:
        with self._change:
            if not self._change.wait_for(lambda: found(self.log), PATIENCE_SEC):
                raise AssertionError("not in the log:\n" + "\n".join(self.log[-30:]))

    def wait_words(self, words: str, times: int = 1) -> None:
        self.wait_log(lambda lines: sum(words in line for line in lines) >= times)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def alive(self) -> bool:
        assert self.process is not None
        return self.process.poll() is None

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._ended()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._ended()

    def _ended(self) -> int:
        assert self.process is not None
        assert self._reader is not None
        code = self.process.wait(PATIENCE_SEC)
        self._reader.join(PATIENCE_SEC)
        assert self._stderr is not None
        self._stderr.close()
        return code

    def status(self) -> dict[str, Any]:
        return self.control.ask("GET", "/v1/status")

    def assert_healthy(self) -> None:
        """The daemon audits its books after every event; none was wrong, and its time never went back."""
        assert self.status()["health"] == {"books_wrong": 0, "clock_went_back": 0, "last_fault": ""}

    def counters(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status()["counters"]
        return found

    def wait_status(self, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask until it is so: the daemon's own view, which follows an event by a moment."""
        deadline = time.monotonic() + PATIENCE_SEC
        while True:
            status = self.status()
            if found(status):
                return status
            if time.monotonic() > deadline:
                raise AssertionError(f"never so: {status}")

    def set_quota(self, pod: str, **limits: Any) -> None:
        self.control.ask("PUT", f"/v1/quotas/{pod}", limits)

    def connect(self, dialect: Dialect = V3) -> Raw:
        raw = Raw(self.path, dialect)
        self._opened.append(raw)
        return raw

    def close_clients(self) -> None:
        while self._opened:
            self._opened.pop().close()

    def client(self, pod: str = "", gpu: str = gpu_key(), dialect: Dialect = V3) -> Raw:
        raw = self.connect(dialect)
        answer = raw.register(pod, gpu)
        assert answer.type is not T.REFUSED, answer.data
        return raw


@contextmanager
def running(directory: Path, **options: Any) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(directory, **options)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.close_clients()
        if daemon.alive():
            daemon.assert_healthy()
            code = daemon.stop()
            raised = [line for line in daemon.log if "callback raised" in line]
            assert len(raised) == options.get("bugs", 0), raised
            assert code == 0, daemon.log[-20:]


def in_child(act: Callable[[], None]) -> int:
    """Fork; the child acts and is killed, whatever happened. Its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        act()
    finally:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(1)  # not reached
