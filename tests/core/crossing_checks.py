"""Whether a client and the daemon agree on the client's lock, given the messages on their way."""

from __future__ import annotations

from typing import Any, Final

from nvshare.core.grant import Grant, Lock, Message
from nvshare.core.scheduler import Scheduler

from .crossing_peers import ANSWERED, Peer

ASKS: Final = (Message.REQUEST, Message.RELEASE_ASKING, Message.LOST)
RELEASES: Final = (Message.RELEASE, Message.RELEASE_ASKING)


def find_fault(peer: Peer, core: Scheduler, by_table: bool) -> str:
    """What is wrong; empty if nothing is."""
    client = core.clients.get(peer.key)
    if client is None or not client.connected or peer.grant is Grant.GONE:
        return ""  # its registration has not arrived
    if by_table and peer.grant is not _view(core, client):
        return f"is {_view(core, client)} to the daemon"
    lock, down = peer.lock, peer.down
    if lock is Lock.HOLDING or lock is Lock.DRAINING:
        # Greeted, or ungated until now, it drains as an answer that ends nothing.
        recalled = peer.recalls > 0 and (lock is Lock.DRAINING or Message.DROP in down)
        if not client.holds and not recalled and Message.SCHED_OFF not in down and peer.counts_or_old():
            return "believes that it holds, and is not known to"
    elif client.holds:
        if Message.LOCK_OK not in down and ANSWERED not in down and not _ends(peer):
            return "is known to hold, and does not know it"
    elif lock is Lock.ASKING and not client.wants:
        leads = {Message.LOCK_OK, Message.SCHED_ON, Message.SCHED_OFF, ANSWERED}
        if not leads.intersection(down) and not any(one.word in ASKS for one in peer.up):
            return "waits, and is forgotten"
    return ""


def _view(core: Scheduler, client: Any) -> Grant:
    """The client's lock as the core sees it."""
    if not core.on:
        return Grant.OFF
    if client.holds:
        if not client.dropping:
            return Grant.GRANTED
        return Grant.DROPPED_ASKING if client.wants else Grant.DROPPED
    if core._recalls.expects(client.key):
        return Grant.RECALLED
    return Grant.ASKED if client.wants else Grant.RELEASED


def _ends(peer: Peer) -> bool:
    """A release of the last grant is on its way."""
    return any(one.word in RELEASES and one.grant in (0, peer.grants_sent + 1) for one in peer.up)
