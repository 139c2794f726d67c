"""Welcomes connections on the clients' socket, refuses them, and notices their ends.

1. The kernel says who connects. A peer whose identity is unknown can read why it is refused.
2. A refusal is one word: sent to the peer, counted, and logged at a bounded rate.
3. A connection that does not register in time is ended.
4. The pidfd shows the end of a peer, even if a child keeps its socket open.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Final

from nvshare.node.connection import Connection
from nvshare.node.fair_queue import FairQueue
from nvshare.node.http_detection import TakeRequest, refuse_request
from nvshare.node.limits import UNKNOWN_LIMITS
from nvshare.node.members import close_pidfd
from nvshare.node.operator_messages import Operators
from nvshare.node.unregistered import Unregistered
from nvshare.pods.cgroups import HOST, Place
from nvshare.pods.peer import (
    PEER_DEAD,
    UNKNOWN_UID,
    IdentityError,
    Peer,
    Process,
    has_hung_up,
    identify,
    unseen_peer,
)
from nvshare.runtime.listener import Exhausted
from nvshare.wire.messages import Message

if TYPE_CHECKING:
    from nvshare.node.scheduler_node import SchedulerNode

UNKNOWN_PEER: Final = Peer(Process(0, 0), UNKNOWN_UID, HOST)
"""Has no rights and no client."""


class Admission:
    def __init__(self, node: SchedulerNode, own_place: Place) -> None:
        self._node = node
        self._dispatcher = node.dispatcher
        self._bounds = node.bounds
        self._queue = FairQueue(node.dispatcher, node.bounds)
        self._operators = Operators(node.dispatcher, own_place, self.note_refused)
        self.unregistered = Unregistered(node.bounds)
        self.take_request: TakeRequest = refuse_request

    def welcome(self, connection_socket: socket.socket) -> None:
        """Raises Exhausted, and the socket is still the caller's."""
        now_ns = self._dispatcher.clock()
        if has_hung_up(connection_socket):  # identifying the peer would cost far more
            self._dispatcher.counters.events["hung_up_unheard"] += 1
            connection_socket.close()
            return
        refusal = ""
        try:
            peer, pidfd = identify(connection_socket)
        except IdentityError as error:
            peer, pidfd, refusal = UNKNOWN_PEER, -1, error.reason  # if it lives, it can read why
            if error.reason == PEER_DEAD:
                peer = unseen_peer(connection_socket)
                if not self._operators.has_right_user(peer):
                    self.note_refused(peer, error.reason, str(error))
                    connection_socket.close()
                    return
        connection = Connection(self._node, connection_socket, peer, pidfd, refusal)
        try:
            connection.owner = self._queue.add(connection, peer.owner)
        except OSError as error:
            if pidfd >= 0:
                os.close(pidfd)
            raise Exhausted(str(error)) from error
        self._add_unregistered(connection)
        if pidfd >= 0:
            self._dispatcher.loop.add_reader(pidfd, self._process_ended, connection)
        self._dispatcher.counters.callbacks.add(self._dispatcher.clock() - now_ns)

    def _add_unregistered(self, connection: Connection) -> None:
        pushed_out = self.unregistered.add(connection, connection.peer.owner)
        if pushed_out is not None:
            self.note_refused(pushed_out.peer, "too_many_silent", "sent nothing while others connected")
            pushed_out.abort()
        connection.handshake = self._dispatcher.loop.call_later(
            self._bounds.handshake_ns / 1e9, self._handshake_timed_out, connection
        )

    def _handshake_timed_out(self, connection: Connection) -> None:
        if self.unregistered.remove(connection):
            self.note_refused(connection.peer, "handshake_timeout", "sent nothing in time")
            connection.abort()

    def leave_unregistered(self, connection: Connection) -> None:
        """The peer has said what it is."""
        if connection.handshake is not None:
            connection.handshake.cancel()
            connection.handshake = None
        self.unregistered.remove(connection)

    def connection_ended(self, connection: Connection) -> None:
        if connection.refusal == PEER_DEAD and connection in self.unregistered:
            self.note_refused(connection.peer, PEER_DEAD, "sent nothing")
        self.leave_unregistered(connection)
        member = self._node.members.registered.get(connection.client)
        if member is None or member.connection is not connection:
            close_pidfd(self._dispatcher.loop, connection.pidfd)
            connection.pidfd = -1
            return
        self._node.members.disconnected(member, connection.ended_by)

    def _process_ended(self, connection: Connection) -> None:
        """The peer of a connection is dead, even if another process has its socket."""
        member = self._node.members.registered.get(connection.client)
        if member is not None and member.pidfd == connection.pidfd:
            self._node.members.process_ended(member)
            connection.abort()
            return
        close_pidfd(self._dispatcher.loop, connection.pidfd)
        connection.pidfd = -1
        # Its last message may be an operator's, and has not been read yet.
        connection.refusal = connection.refusal or PEER_DEAD
        self._dispatcher.loop.call_later(self._bounds.last_words_ns / 1e9, connection.abort)

    def refuse(self, connection: Connection, reason: str, detail: str, pod: str = "") -> None:
        """The peer gets the limits of its pod, if that is known, and keeps to them without us."""
        self.note_refused(connection.peer, reason, detail)
        if reason == PEER_DEAD:  # no other message will come
            self.leave_unregistered(connection)
        connection.refuse(reason, self._node.limits.of(pod) if pod else UNKNOWN_LIMITS)

    def note_refused(self, peer: Peer, reason: str, detail: str) -> None:
        self._dispatcher.counters.refused[reason] += 1
        fields = {"reason": reason, "pid": peer.process.pid, "uid": peer.uid, "detail": detail}
        self._dispatcher.repeats.warning("refused", peer.owner, **fields)

    def trusted(self, peer: Peer) -> bool:
        """Root or our own user, in no container or in ours."""
        return self._operators.trusted(peer)

    def operate(self, connection: Connection, message: Message) -> None:
        """An operator's message."""
        self.leave_unregistered(connection)
        self._operators.take(connection.peer, message, connection.abort)
