"""The client for programs with threads.

A thread of ours reads and keeps time. The program's threads write by themselves if they can, so that a
request does not wait for a thread to wake up.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nvshare.client.errors import NO_ROOM, ClientRefused
from nvshare.client.link import Phase
from nvshare.client.memory_account import MemoryRequest, may_oversubscribe
from nvshare.client.reconnect import reconnect_delay_sec
from nvshare.client.session import Session
from nvshare.runtime.paths import scheduler_socket
from nvshare.wire.faults import RemoteProtocolError

LOGGER: Final = logging.getLogger("nvshare.client")
_READ_BYTES: Final = 65_536


class Client:
    """One process's use of one GPU. Any thread may use it."""

    def __init__(
        self, gpu: str = "", *, sock_dir: str | None = None, pod: str = "", namespace: str = ""
    ) -> None:
        self._path = scheduler_socket(sock_dir)
        self._session = Session(gpu, pod, namespace, os.getpid(), time.monotonic_ns(), may_oversubscribe())
        self._change = threading.Condition()
        self._socket: socket.socket | None = None
        self._closed = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name="nvshare-client", daemon=True)
        self._thread.start()

    # ---- for programs ------------------------------------------------------------------------

    @contextmanager
    def gpu(self) -> Iterator[None]:
        """Use the GPU inside the block; all work launched in it must be complete at its end."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def acquire(self) -> None:
        with self._change:
            self._raise_if_refused()
            session = self._session
            session.wait(time.monotonic_ns())
            self._flush()
            try:
                while not session.turns.enter(time.monotonic_ns()):
                    self._raise_if_refused()
                    self._flush()
                    self._wait()
            except BaseException:
                session.turns.give_up()
                raise
            self._flush()

    def release(self) -> None:
        with self._change:
            self._session.turns.leave(time.monotonic_ns())
            self._flush()
            self._wake()  # the thread has to watch the gap from now on

    def reserve(self, amount_bytes: int) -> bool:
        """Count memory before it is allocated; False if that much is not permitted: see ``refusal``.

        Raises ClientRefused if the daemon does not know the GPU.
        """
        with self._change:
            self._raise_if_refused()
            asking: MemoryRequest = self._session.ask(amount_bytes, time.monotonic_ns())
            self._flush()
            try:
                while asking.answer is None and not self._closed:
                    self._wait()
            except BaseException:  # raised by a signal handler
                self._session.memory.withdraw(asking)
                self._flush()
                raise
            self._raise_if_refused()
            return bool(asking.answer)

    @property
    def refusal(self) -> str:
        """Why ``reserve`` last refused."""
        return self._session.memory.refusal

    def free(self, amount_bytes: int) -> None:
        with self._change:
            self._session.memory.free(amount_bytes)
            self._flush()

    def wait_ready(self, timeout_sec: float) -> bool:
        """Wait until the daemon has answered; False if it has not in time."""
        with self._change:
            done = (Phase.READY, Phase.REFUSED)
            self._change.wait_for(lambda: self._session.phase in done, timeout_sec)
            self._raise_if_refused()
            return self._session.phase is Phase.READY

    @property
    def session(self) -> Session:
        """For inspection: limits, hints, whether it runs ungated."""
        return self._session

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()
            self._wake()
        self._thread.join()
        with self._change:  # a block that is still inside has nothing to wake
            for descriptor in (self._wake_read, self._wake_write):
                os.close(descriptor)
            self._wake_read = self._wake_write = -1

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # ---- inside ------------------------------------------------------------------------------

    def _raise_if_refused(self) -> None:
        if self._session.phase is Phase.REFUSED:
            raise ClientRefused(self._session.refusal)
        if self._closed:
            raise ClientRefused("closed")

    def _wait(self) -> None:
        self._wake()
        self._change.wait()

    def _wake(self) -> None:
        if self._wake_write < 0:
            return
        with contextlib.suppress(BlockingIOError):  # the last wake-up has not been read yet
            os.write(self._wake_write, b"x")

    def _flush(self) -> None:
        output = self._session.output
        if self._socket is None or not output:
            return
        try:
            sent = self._socket.send(output)
            del output[:sent]
        except BlockingIOError:
            self._wake()
        except OSError:
            self._wake()  # the reading thread finds out why

    def _run(self) -> None:
        refused = 0
        while not self._closed:
            connection = self._connect()
            if connection is not None:
                self._serve(connection)
            if self._session.phase is Phase.REFUSED:
                return
            refused = refused + 1 if self._session.phase is Phase.CROWDED else 0
            if refused == 1:
                does = "waits" if self._session.link.is_limited() else "runs ungated"
                LOGGER.warning(NO_ROOM, self._session.refusal, does)
            self._pause(reconnect_delay_sec(refused))

    def _connect(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(self._path)
        except OSError:
            connection.close()
            with self._change:
                self._session.unreachable(time.monotonic_ns())
                self._change.notify_all()
            return None
        connection.setblocking(False)
        with self._change:
            self._socket = connection
            self._session.connected(time.monotonic_ns())
            self._flush()
        return connection

    def _serve(self, connection: socket.socket) -> None:
        try:
            while not self._closed and self._read(connection, self._poll(connection)):
                pass
        finally:
            with self._change:
                self._socket = None
                self._session.disconnected(time.monotonic_ns())
                self._change.notify_all()
            connection.close()

    def _read(self, connection: socket.socket, events: int) -> bool:
        """False when the connection is over."""
        data: bytes | None = None
        if events & ~select.POLLOUT:
            try:
                data = connection.recv(_READ_BYTES)
            except BlockingIOError:
                data = None
            except OSError:
                data = b""
        with self._change:
            now_ns = time.monotonic_ns()  # not earlier than the times that other threads gave the session
            if data:
                try:
                    self._session.received(data, now_ns)
                except RemoteProtocolError as error:
                    LOGGER.warning("no nvshare daemon answers at %s: %s", self._path, error)
                    data = b""
            self._tick(now_ns)
            self._flush()
            if data is not None:
                self._change.notify_all()
        return data != b""

    def _tick(self, now_ns: int) -> None:
        was_ungated = self._session.link.ungated
        self._session.tick(now_ns)
        if self._session.link.ungated and not was_ungated:
            LOGGER.warning("the daemon at %s has been silent for 10 s: running ungated", self._path)
        if self._session.turns.may_enter() and not self._session.turns.rests(now_ns):
            self._change.notify_all()

    def _timeout_ms(self, most_ms: int | None) -> int | None:
        deadline_ns = self._session.deadline_ns()
        if deadline_ns is None:
            return most_ms
        left_ms = max(0, -((time.monotonic_ns() - deadline_ns) // 1_000_000))
        return left_ms if most_ms is None else min(left_ms, most_ms)

    def _poll(self, connection: socket.socket | None, most_ms: int | None = None) -> int:
        """Wait for the socket, a wake-up or the session's deadline; the data of the socket."""
        poller = select.poll()
        poller.register(self._wake_read, select.POLLIN)
        with self._change:
            if connection is not None:
                writes = select.POLLOUT if self._session.output else 0
                poller.register(connection, select.POLLIN | writes)
            timeout_ms = self._timeout_ms(most_ms)
        found = dict(poller.poll(timeout_ms))
        if self._wake_read in found:
            os.read(self._wake_read, 4096)
        return found.get(connection.fileno(), 0) if connection is not None else 0

    def _pause(self, seconds: float) -> None:
        """Until the next attempt, while serving the session's deadlines and the program's end."""
        end_ns = time.monotonic_ns() + int(seconds * 1e9)
        while not self._closed and (left_ns := end_ns - time.monotonic_ns()) > 0:
            self._poll(None, left_ns // 1_000_000 + 1)
            with self._change:
                self._tick(time.monotonic_ns())
