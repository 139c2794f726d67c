"""Fair queueing of messages, by owner, pod and connection.

1. Messages wait in the kernel's buffers until they are read. A client that fills its buffer waits itself.
2. An owner is a pod, a container, or a user outside of both, as identified by the kernel. Each round of the
   loop reads every owner with messages once, and serves control and metrics as well. An owner that took more
   than its share the last time goes to a queue: queued owners are read after all others and share
   ``Bounds.round_ns`` of each round, and those not reached are first in the next one. So a round is longer
   than that by one read at most, however many owners there are and whatever their messages cost.
3. A user's pods take turns, and so do a pod's connections. The kernel rotates them: an epoll instance returns
   ready descriptors in the order in which they became ready.
4. One read takes at most ``Bounds.read_bytes`` from a connection, about eight messages.
5. Of an owner with more messages than its share, clients that others may wait for are read first: those that
   must drop a GPU, then those that hold one.
"""

from __future__ import annotations

import select
from itertools import islice
from typing import TYPE_CHECKING, Final

from nvshare.node.bounds import Bounds
from nvshare.node.dispatcher import Dispatcher

if TYPE_CHECKING:
    from nvshare.node.connection import Connection

_BATCH: Final = 16
_PER_POD: Final = 2
_HOLDERS_FIRST: Final = 8


class PodSet:
    """The connections of a pod that has several."""

    __slots__ = ("connections", "epoll")

    def __init__(self) -> None:
        """Raises OSError when there are no descriptors left."""
        self.epoll = select.epoll()
        self.connections: dict[int, Connection] = {}  # by descriptor

    def add(self, connection: Connection) -> None:
        fd = connection.stream.fd
        self.connections[fd] = connection
        self.epoll.register(fd, select.EPOLLIN)

    def remove(self, connection: Connection) -> None:
        fd = connection.stream.fd
        del self.connections[fd]
        self.epoll.unregister(fd)


class Owner:
    """The connections of one owner."""

    __slots__ = (
        "_alone",
        "_backlogged",
        "_connections",
        "_dropping",
        "_epoll",
        "_holding",
        "_overspent",
        "_pod_of",
        "_queue",
        "_sets",
        "_sets_by_fd",
        "_takes_turns",
        "key",
    )

    def __init__(self, queue: FairQueue, key: str) -> None:
        """Raises OSError when there are no descriptors left."""
        self.key = key
        self._queue = queue
        self._epoll = select.epoll()
        self._takes_turns = key.startswith("uid:")  # others are one pod each
        self._connections: dict[int, Connection] = {}  # by descriptor, connections in no set of their pod
        self._alone: dict[str, Connection] = {}  # by pod, the same
        self._sets: dict[str, PodSet] = {}  # by pod
        self._sets_by_fd: dict[int, PodSet] = {}
        self._pod_of: dict[Connection, str] = {}  # that have reported it
        self._dropping: dict[Connection, None] = {}
        self._holding: dict[Connection, None] = {}
        self._backlogged = False  # it had more messages than were read
        self._overspent = False  # it took its share, or more
        queue.dispatcher.loop.add_reader(self._epoll.fileno(), self._ready)

    # ---- membership --------------------------------------------------------------------------

    def add(self, connection: Connection) -> None:
        fd = connection.stream.fd
        self._connections[fd] = connection
        self._epoll.register(fd, select.EPOLLIN)

    def _take_out(self, connection: Connection) -> None:
        fd = connection.stream.fd
        del self._connections[fd]
        self._epoll.unregister(fd)

    def enter_pod(self, connection: Connection, pod: str) -> None:
        """From now on it takes turns with the other connections of that pod."""
        if not self._takes_turns or connection in self._pod_of:
            return
        self._pod_of[connection] = pod
        pod_set = self._sets.get(pod)
        if pod_set is None:
            if pod not in self._alone:
                self._alone[pod] = connection
                return
            try:
                pod_set = PodSet()
            except OSError:  # no descriptors left: it takes turns like a pod of its own
                del self._pod_of[connection]
                return
            self._sets[pod] = self._sets_by_fd[pod_set.epoll.fileno()] = pod_set
            self._epoll.register(pod_set.epoll.fileno(), select.EPOLLIN)
            first = self._alone.pop(pod)
            self._take_out(first)
            pod_set.add(first)
        self._take_out(connection)
        pod_set.add(connection)

    def remove(self, connection: Connection) -> None:
        """Call it before the descriptor is closed."""
        self.let_go(connection)
        pod = self._pod_of.pop(connection, "")
        pod_set = self._sets.get(pod)
        if pod_set is None or connection.stream.fd not in pod_set.connections:
            self._take_out(connection)
            self._alone.pop(pod, None)
        else:
            pod_set.remove(connection)
            if not pod_set.connections:
                del self._sets[pod]
                del self._sets_by_fd[pod_set.epoll.fileno()]
                pod_set.epoll.close()
        if not self._connections and not self._sets:
            self._close()

    def _close(self) -> None:
        self._queue.dispatcher.loop.remove_reader(self._epoll.fileno())
        self._queue.forget(self)
        self._epoll.close()

    # ---- holders -----------------------------------------------------------------------------

    def hold(self, connection: Connection) -> None:
        self._holding[connection] = None

    def drop(self, connection: Connection) -> None:
        self._holding.pop(connection, None)
        self._dropping[connection] = None

    def let_go(self, connection: Connection) -> None:
        self._holding.pop(connection, None)
        self._dropping.pop(connection, None)

    # ---- reading -----------------------------------------------------------------------------

    def _ready(self) -> None:
        if self._overspent:
            self._queue.stand_in_line(self)
        else:
            self.read()

    def read(self) -> None:
        """As much as its share of the round allows."""
        queue = self._queue
        clock = queue.dispatcher.clock
        began_ns = clock()
        ends_ns = began_ns + queue.share_ns()
        if self._backlogged:
            self._read_holders(ends_ns)
        more = True
        while more and not self._epoll.closed:
            more = self._read_batch(ends_ns)
        self._overspent = clock() >= ends_ns
        self._note_backlog(self._overspent)
        queue.dispatcher.counters.callbacks.add(clock() - began_ns)

    def _read_batch(self, ends_ns: int) -> bool:
        """Whether there may be more to read, and time for it."""
        clock = self._queue.dispatcher.clock
        found = self._epoll.poll(0, _BATCH)
        more = len(found) == _BATCH
        for fd, _ in found:
            connection = self._connections.get(fd)
            if connection is not None:
                connection.read()
            elif (pod_set := self._sets_by_fd.get(fd)) is not None:
                ready = pod_set.epoll.poll(0, _PER_POD)
                more = more or len(ready) == _PER_POD
                for member_fd, _ in ready:
                    member = pod_set.connections.get(member_fd)  # None: reading another one ended it
                    if member is not None:
                        member.read()
            if clock() >= ends_ns:
                return False
        return more

    def _read_holders(self, ends_ns: int) -> None:
        """Rule 5, in half of its time: holders that send without end must not keep out the others."""
        clock = self._queue.dispatcher.clock
        half_ns = (clock() + ends_ns) // 2
        for waited_for in (self._dropping, self._holding):
            for connection in [*islice(waited_for, _HOLDERS_FIRST)]:
                if clock() >= half_ns:
                    return
                if waited_for.pop(connection, True) is None:  # to the end, so that all have their turn
                    waited_for[connection] = None
                    connection.read()

    def _note_backlog(self, out_of_time: bool) -> None:
        closed = self._epoll.closed
        backlogged = out_of_time and not closed and bool(self._epoll.poll(0, 1))
        if backlogged is not self._backlogged:
            self._backlogged = backlogged
            self._queue.note_backlog(self, backlogged)


class FairQueue:
    """All owners."""

    def __init__(self, dispatcher: Dispatcher, bounds: Bounds) -> None:
        self.dispatcher = dispatcher
        self._round_ns = bounds.round_ns
        self._least_ns = bounds.round_least_ns
        self._owners: dict[str, Owner] = {}
        self._backlogged: set[Owner] = set()
        self._line: dict[Owner, None] = {}  # rule 2, in order
        self._line_called = False

    def add(self, connection: Connection, key: str) -> Owner:
        """Read it from now on, when it is its owner's turn. Raises OSError when there are no descriptors
        left.
        """
        owner = self._owners.get(key)
        if owner is None:
            owner = self._owners[key] = Owner(self, key)
        owner.add(connection)
        return owner

    def forget(self, owner: Owner) -> None:
        """The owner has no connection left."""
        del self._owners[owner.key]
        self._backlogged.discard(owner)
        self._line.pop(owner, None)

    def stand_in_line(self, owner: Owner) -> None:
        self._line[owner] = None
        self._call_line()

    def _call_line(self) -> None:
        """After all owners that are ready now."""
        if not self._line_called:
            self._line_called = True
            self.dispatcher.loop.call_soon(self._read_line)

    def _read_line(self) -> None:
        self._line_called = False
        ends_ns = self.dispatcher.clock() + self._round_ns
        for owner in list(self._line):
            if self._line.pop(owner, True) is None:  # reading another connection may have ended it
                owner.read()
            if self.dispatcher.clock() >= ends_ns:
                break
        if self._line:
            self._call_line()

    def note_backlog(self, owner: Owner, backlogged: bool) -> None:
        if backlogged:
            self._backlogged.add(owner)
        else:
            self._backlogged.discard(owner)

    def share_ns(self) -> int:
        """How long an owner is read in one round."""
        return max(self._least_ns, self._round_ns // max(1, len(self._backlogged)))
