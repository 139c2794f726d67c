"""Requests of the machine's users on the clients' socket: ``nvshare run`` and ``nvshare ctl``.

1. Users connect to scheduler.sock: tenants' directory gets no second socket, and the directory of
   control.sock stays closed. A request is HTTP; its first letter tells it from a message.
2. The kernel identifies the user: uid, groups and process of the connection. Users that ``NVSHARE_USERS``
   permits are answered, outside containers; others get the reason. Nothing that is sent makes a user another
   one, and no request here has an operator's rights.
3. Requests cost a bounded time of the loop: one request per connection, a few connections at once and a
   number of requests a second for each user. A user who asks for more has to wait. A connection without a
   request within ten seconds is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.config import Config as HttpConfig
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from nvshare.node.bounds import Bounds
from nvshare.node.dispatcher import Dispatcher
from nvshare.node.http_refusal import refusal
from nvshare.node.requesters import Requester
from nvshare.node.users import NOBODY, Users
from nvshare.pods.cgroups import Place
from nvshare.pods.peer import UNKNOWN_UID, Peer
from nvshare.runtime import logs
from nvshare.runtime.paths import CONTROL_SOCKET

REMEMBERED_UIDS: Final = 4096
_KEEP_ALIVE_SEC: Final = 5


class _OneRequest(H11Protocol):
    """A connection whose first bytes have been read already, for one request."""

    def __init__(self, *http: Any, head: bytes, ended: Callable[[], None]) -> None:
        super().__init__(*http)
        self._head = head
        self._ended = ended

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.data_received(self._head)  # before the loop reads what follows

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._ended()


class _Allowance:
    """How many requests each user may still make."""

    def __init__(self, bounds: Bounds) -> None:
        self._every_ns = 1_000_000_000 // bounds.user_requests_per_sec
        self._most_ns = bounds.user_requests_at_once * self._every_ns
        self._spent_until_ns: OrderedDict[int, int] = OrderedDict()  # by user, the longest silent first

    def take(self, uid: int, now_ns: int) -> bool:
        """Whether there was one left."""
        spent_ns = max(self._spent_until_ns.pop(uid, 0), now_ns)
        permitted = spent_ns + self._every_ns <= now_ns + self._most_ns
        self._spent_until_ns[uid] = spent_ns + self._every_ns if permitted else spent_ns
        if len(self._spent_until_ns) > REMEMBERED_UIDS:
            self._spent_until_ns.popitem(last=False)
        return permitted


def _once(app: ASGIApp) -> ASGIApp:
    """Each answer ends its connection (rule 3)."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["asked"].set()

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        await app(scope, receive, say)

    return answer


class Requests:
    def __init__(
        self, dispatcher: Dispatcher, app: ASGIApp, bounds: Bounds, users: Callable[[], Users]
    ) -> None:
        self._dispatcher = dispatcher
        self._bounds = bounds
        self._users = users
        self._http = HttpConfig(
            _once(app),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE_SEC,
            ws="none",
        )
        self._http.load()
        self._state = ServerState()
        self._open: Counter[int] = Counter()  # connections, by user
        self._opening: set[asyncio.Task[None]] = set()
        self._allowance = _Allowance(bounds)

    def take(self, connected: socket.socket, peer: Peer, head: bytes) -> None:
        """A connection that begins with ``head``, which has been read."""
        why_not = self._why_not(peer)
        if why_not is not None:
            self._refuse(connected, peer, *why_not)
            return
        opening = self._dispatcher.loop.create_task(self._begin(connected, self._serve(peer, head)))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    def _refuse(self, connected: socket.socket, peer: Peer, status: int, why: str) -> None:
        """Answered at once, so that nothing remains: data that arrives later is read after the end."""
        self._dispatcher.counters.refused["not_permitted" if status == 403 else "too_many_requests"] += 1
        self._dispatcher.repeats.warning("request refused", peer.owner, uid=peer.uid, why=why)
        with connected, contextlib.suppress(OSError):
            connected.send(refusal(status, why))

    def _why_not(self, peer: Peer) -> tuple[int, str] | None:
        users, bounds = self._users(), self._bounds
        if peer.place != Place():
            return 403, "not from inside a container: its limits are set from outside"
        if peer.uid in (0, UNKNOWN_UID):
            return 403, f"root uses {CONTROL_SOCKET}, in NVSHARE_PRIVATE_DIR"
        if not users.may_run(peer.groups):
            return 403, _how_to_be_let_in(users)
        crowded = self._open[peer.uid] >= bounds.user_connections_per_uid
        if crowded or self._open.total() >= bounds.user_connections:
            return 429, "too many requests at once"
        if not self._allowance.take(peer.uid, self._dispatcher.clock()):
            return 429, f"more than {bounds.user_requests_per_sec} requests a second"
        return None

    def _serve(self, peer: Peer, head: bytes) -> Callable[[], asyncio.Protocol]:
        asked = asyncio.Event()
        state = {"requester": Requester(peer), "asked": asked}
        self._open[peer.uid] += 1

        def ended() -> None:
            self._open[peer.uid] -= 1
            if not self._open[peer.uid]:
                del self._open[peer.uid]

        def make() -> asyncio.Protocol:
            made = _OneRequest(self._http, self._state, state, self._dispatcher.loop, head=head, ended=ended)
            self._dispatcher.loop.call_later(self._bounds.user_request_ns / 1e9, _give_up, made, asked)
            return made

        return make

    async def _begin(self, connected: socket.socket, protocol: Callable[[], asyncio.Protocol]) -> None:
        try:
            await self._dispatcher.loop.connect_accepted_socket(protocol, connected)
        except OSError as error:
            self._dispatcher.repeats.warning("request lost", logs.OTHERS, why=error)
            connected.close()


def _give_up(connection: H11Protocol, asked: asyncio.Event) -> None:
    if not asked.is_set() and connection.transport is not None:
        connection.transport.abort()


def _how_to_be_let_in(users: Users) -> str:
    if users.group == NOBODY:
        return "root's node serves root alone; root can change that by NVSHARE_USERS"
    if not users.anybody():
        return (
            f"root's node serves root alone, because no group is called {users.group!r}. Ask root for"
            f" `groupadd {users.group}` and `usermod -aG {users.group} USER`, or NVSHARE_USERS=all, and a new"
            " `nvshare up`"
        )
    return (
        f"only the group {users.group} may use root's node; ask root for `usermod -aG {users.group} USER`,"
        " and log in again"
    )
