"""Messages of operators' tools on the clients' socket, and who may send them.

1. Root and the daemon's own user may, in no container or in the daemon's own. Root in a pod is a tenant.
2. Old tools send one message and exit, often before the daemon has looked at them. The kernel still knows
   which user connected, but no longer from which container. While no process of this machine is in another
   container there is no doubt; otherwise the message is refused.
3. The search for other containers takes longer than the loop can spare, so a thread does it. Messages are
   obeyed in the order of their arrival all the same.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from nvshare.core import events
from nvshare.node.dispatcher import Dispatcher
from nvshare.pods.cgroups import UNSEEN, Place
from nvshare.pods.peer import Peer, others_in_containers
from nvshare.runtime import logs
from nvshare.wire.messages import Message, MessageType

WAITING_MAX: Final = 256
NOT_PERMITTED: Final = "not_permitted"
Refuse = Callable[[Peer, str, str], None]


class _Order(NamedTuple):
    peer: Peer
    message: Message
    abort: Callable[[], None]


def set_slice(dispatcher: Dispatcher, seconds: int) -> None:
    dispatcher.repeats.info("slice set", logs.OPERATOR, seconds=seconds)
    dispatcher.feed(events.SliceSet(seconds * 1_000_000_000))


def set_scheduling(dispatcher: Dispatcher, on: bool) -> None:
    dispatcher.repeats.info("scheduling set", logs.OPERATOR, on=on)
    dispatcher.feed(events.SchedulingSet(on))


class Operators:
    def __init__(self, dispatcher: Dispatcher, own_place: Place, refuse: Refuse) -> None:
        self._dispatcher = dispatcher
        self._own_place = own_place
        self._refuse = refuse
        self._waiting: deque[_Order] = deque()  # in order of arrival; the first is in doubt
        self._looking: asyncio.Task[None] | None = None

    def has_right_user(self, peer: Peer) -> bool:
        return peer.uid in (0, os.geteuid())

    def trusted(self, peer: Peer) -> bool:
        """Rule 1."""
        at_home = not peer.place.contained or peer.place == self._own_place
        return self.has_right_user(peer) and at_home

    def _in_doubt(self, peer: Peer) -> bool:
        """Rule 2."""
        return peer.place == UNSEEN and self.has_right_user(peer)

    def take(self, peer: Peer, message: Message, abort: Callable[[], None]) -> None:
        """``abort`` ends the connection of a sender that is not permitted."""
        order = _Order(peer, message, abort)
        if not self._waiting and not self._in_doubt(peer):
            self._decide(order, self.trusted(peer))
        elif len(self._waiting) >= WAITING_MAX:
            self._decide(order, False)
        else:
            self._waiting.append(order)
            if self._looking is None or self._looking.done():
                self._looking = asyncio.get_running_loop().create_task(self._in_order())

    async def _in_order(self) -> None:
        while self._waiting:
            order = self._waiting[0]
            permitted = self.trusted(order.peer)
            if self._in_doubt(order.peer):
                permitted = not await asyncio.to_thread(others_in_containers, self._own_place)
            self._waiting.popleft()
            self._decide(order, permitted)

    def _decide(self, order: _Order, permitted: bool) -> None:
        if permitted:
            self._obey(order.message)
            return
        kind = order.message.type.name
        doubt = (
            "; its sender has ended, and may have been in a container" if self._in_doubt(order.peer) else ""
        )
        self._refuse(order.peer, NOT_PERMITTED, kind + doubt)
        order.abort()

    def _obey(self, message: Message) -> None:
        if message.type is MessageType.SET_TQ:
            set_slice(self._dispatcher, int(message.data))
        else:
            set_scheduling(self._dispatcher, message.type is MessageType.SCHED_ON)
