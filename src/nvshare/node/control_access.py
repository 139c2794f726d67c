"""Access to the control socket: checks who connects, then hands the connection to the HTTP server."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

from starlette.applications import Starlette
from uvicorn.config import Config as HttpConfig
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from nvshare.node.bounds import Bounds
from nvshare.node.http_refusal import Refusal
from nvshare.node.requesters import OPERATOR
from nvshare.node.scheduler_node import SchedulerNode
from nvshare.pods.peer import IdentityError, identify
from nvshare.runtime import logs

_WHY: Final = "not permitted: root or the daemon's own user, outside containers"
IDLE_SEC: Final = 60


class ControlAccess:
    def __init__(self, node: SchedulerNode, app: Starlette, bounds: Bounds) -> None:
        self._node = node
        self._bounds = bounds
        self._loop = node.dispatcher.loop
        self._repeats = node.dispatcher.repeats
        self._http = HttpConfig(
            app, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=IDLE_SEC, ws="none"
        )
        self._http.load()
        self._state = ServerState()
        self._opening: set[asyncio.Task[None]] = set()
        self.room_made: Callable[[], None] = lambda: None

    def full(self) -> bool:
        """Checked again after a moment, since the HTTP server does not report the end of a connection."""
        full = len(self._state.connections) + len(self._opening) >= self._bounds.control_connections
        if full:
            self._loop.call_later(self._bounds.exhausted_pause_ns / 1e9, lambda: self.room_made())
        return full

    def welcome(self, connection: socket.socket) -> None:
        try:
            peer, pidfd = identify(connection)
        except IdentityError as error:
            self._repeats.warning("control connection refused", logs.OTHERS, reason=error.reason)
            connection.close()
            return
        os.close(pidfd)
        if not self._node.admission.trusted(peer):
            self._node.admission.note_refused(peer, "not_permitted", "control socket")
            opening = self._loop.create_task(self._open(connection, lambda: Refusal(self._loop, 403, _WHY)))
        else:
            opening = self._loop.create_task(self._open(connection, self._serve))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def _serve(self) -> H11Protocol:
        return H11Protocol(self._http, self._state, {"requester": OPERATOR}, self._loop)

    async def _open(self, connection: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        try:
            await self._loop.connect_accepted_socket(protocol, connection)
        except OSError as error:
            self._repeats.warning("control connection lost", logs.OTHERS, why=error)
            connection.close()

    def close(self) -> None:
        for protocol in list(self._state.connections):
            protocol.shutdown()
