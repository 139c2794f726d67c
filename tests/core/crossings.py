"""A random walk with delayed messages: messages in opposite directions may cross.

    python -m tests.core.crossings --steps 10000000 --seed 1

Each client has two queues, one for each direction; their messages arrive in order, after any delay. There is
one kind of client for each dialect, and one more: version 3 before it counted its grants
(``crossing_peers``). These rules are checked after every step, given both ends and the messages on their way:

1. A client that believes it holds is known to hold, or the message that ends its belief is on its way. A
   client that does not count grants is known again as soon as it reports work.
2. A client that is known to hold believes it, or LOCK_OK is on its way to it, or its release is on its way
   back.
3. A client that waits for LOCK_OK is known to, or a message that leads there is on its way.
4. The daemon's view of each client follows from the table and the messages it received and sent, in order,
   and it sends none that the table does not allow.

At intervals all clients behave for a while and all messages arrive: then every client that waits is granted.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from nvshare.core import effects, events
from nvshare.core.audit import EVERY_EVENT, SAMPLED
from nvshare.core.grant import DAEMON, Grant, Kind, Message
from nvshare.core.scheduler import Scheduler
from nvshare.core.settings import Settings

from .crossing_checks import find_fault
from .crossing_peers import ANSWERED, MS, Peer, Telling

SECOND: Final = 1_000_000_000
GIB: Final = 1 << 30
CLIENTS_MAX: Final = 7
UNDER_WAY_MAX: Final = 12
CALM_EVERY: Final = 4000
CALM_NS: Final = 120 * SECOND
DELAYS_NS: Final = (0, 0, 1000, MS, 10 * MS, 60 * MS, 600 * MS, 3 * SECOND)
PODS: Final = ("a", "b", "c", "d")


class LostError(AssertionError):
    """A promise was broken; the text has the seed, the step and the last words."""


MakeCore = Callable[[Settings], Scheduler]


def checked_core(settings: Settings) -> Scheduler:
    return Scheduler(settings, EVERY_EVENT)


def quick_core(settings: Settings) -> Scheduler:
    return Scheduler(settings, SAMPLED)


class Walk:
    by_table = True  # else only the two ends are compared, and the table is not asked

    def __init__(self, seed: int, make_core: MakeCore = checked_core) -> None:
        self.seed = seed
        self.random = Random(seed)
        settings = Settings(drain_grace_ns=self.random.choice((20, 50, 500)) * MS, drop_timeout_ns=SECOND)
        self.core = make_core(settings)
        self.now_ns = SECOND
        self.peers: list[Peer] = []
        self.severed: set[int] = set()  # clients whose connection has ended
        self.next_key = 1
        self.steps = 0
        self.crossed = 0  # releases that had crossed a grant
        self.found = 0  # holds that were lost and found
        self.grants = 0
        self.recent: deque[str] = deque(maxlen=60)
        self.core.handle(events.GpuSeen("GPU-0", 16 * GIB, 0), self.now_ns)
        moves: list[tuple[int, Callable[[], bool]]] = [
            (30, self.arrive),
            (24, self.reach),
            (8, self.come),
            (6, self.go_in),
            (6, self.drain),
            (4, self.pass_time),
            (2, self.work),
            (2, self.despair),
            (2, self.idle),
            (1, self.rare),
        ]
        for _ in range(CLIENTS_MAX // 2):
            self.register()
        self.moves = [move for weight, move in moves for _ in range(weight)]

    # ---- walking -------------------------------------------------------------------------------------

    def walk(self, steps: int) -> None:
        until = self.steps + steps
        choice, moves = self.random.choice, self.moves
        while self.steps < until:
            if choice(moves)():
                self.steps += 1
                if self.steps % CALM_EVERY == 0:
                    self.calm()

    def fail(self, peer: Peer, text: str) -> None:
        words = "\n".join(self.recent)
        ends = f"lock {peer.lock}, grant {peer.grant}, down {list(peer.down)}, up {list(peer.up)}"
        raise LostError(f"seed {self.seed}, step {self.steps}: {peer.key} {text}\n{ends}\n{words}")

    def some(self) -> Peer | None:
        return self.random.choice(self.peers) if self.peers else None

    # ---- moves ---------------------------------------------------------------------------------------

    def arrive(self) -> bool:
        """A word reaches the daemon."""
        peer = self.some()
        if peer is None or not peer.up:
            return False
        self.take(peer, peer.up.popleft())
        return True

    def reach(self) -> bool:
        """A word reaches its client."""
        peer = self.some()
        if peer is None or not peer.reads():
            return False
        peer.read()
        self.check(peer)
        return True

    def _by(self, what: Callable[[Peer], None]) -> bool:
        peer = self.some()
        if peer is None or len(peer.up) >= UNDER_WAY_MAX:
            return False
        before = (peer.lock, peer.waiting, len(peer.up))
        what(peer)
        self.check(peer)
        return before != (peer.lock, peer.waiting, len(peer.up))

    def come(self) -> bool:
        return self._by(Peer.come)

    def go_in(self) -> bool:
        return self._by(Peer.go_in)

    def drain(self) -> bool:
        return self._by(Peer.drain)

    def work(self) -> bool:
        return self._by(Peer.work)

    def despair(self) -> bool:
        return self._by(Peer.despair)

    def idle(self) -> bool:
        return self._by(Peer.idle)

    def pass_time(self) -> bool:
        self.let_pass(self.random.choice(DELAYS_NS))
        return True

    def rare(self) -> bool:
        choice = self.random.randrange(40)
        if choice < 14:
            self.register()
        elif choice < 16:
            self.leave()
        elif choice < 22:
            self.reconnect()
        elif choice < 30:
            percent = self.random.choice((None, 10, 30, 50, 90, 100))
            self.feed(events.LimitsSet(self.random.choice(PODS), "ctl", None, percent))
        elif choice < 34:
            self.switch()
        return True

    def register(self) -> None:
        if len(self.peers) >= CLIENTS_MAX:
            return
        version, counts = self.random.choice(
            ((1, False), (2, False), (2, False), (3, True), (3, True), (3, False))
        )
        peer = Peer(self._key(), self.random.choice(PODS), version, counts)
        self.peers.append(peer)
        self.feed(events.ClientRegistered(peer.key, peer.pod, "GPU-0", version))

    def leave(self) -> None:
        peer = self.some()
        if peer is not None:
            self.peers.remove(peer)
            self.feed(events.ProcessGone(peer.key))

    def reconnect(self) -> None:
        """A lost connection: the daemon may hear of it, or of the new one first."""
        peer = self.some()
        if peer is None or peer.kind is Kind.OLD or not peer.welcome:
            return
        previous = peer.key
        self.severed.add(previous)
        peer.resume(self._key())
        if self.random.random() < 0.5:
            self.feed(events.ClientDisconnected(previous))
        while self.random.random() < 0.3:
            self._by(lambda _: [peer.drain, peer.idle, peer.come, peer.go_in][self.random.randrange(4)]())
        peer.recalls = previous  # until RESUME arrives, whom it was

    def switch(self) -> None:
        for _ in range(self.random.choice((1, 1, 2, 2, 4))):
            self.feed(events.SchedulingSet(not self.core.on))

    def _key(self) -> int:
        self.next_key += 1
        return self.next_key

    # ---- the daemon's end ----------------------------------------------------------------------------

    def let_pass(self, ns: int) -> None:
        target_ns = self.now_ns + ns
        while (due_ns := self.core.next_deadline_ns()) is not None and due_ns <= target_ns:
            self.now_ns = max(due_ns, self.now_ns)
            self.feed(events.Woken())
        self.now_ns = target_ns

    def take(self, peer: Peer, telling: Telling) -> None:
        word, key = telling.word, peer.key
        if word is Message.LOST:
            previous, peer.recalls = peer.recalls, 0
            resumed = (telling.holds, telling.wants, telling.busy_ns, 0)
            self.feed(events.ClientResumed(key, peer.pod, "GPU-0", previous, *resumed), peer, telling)
        elif word is Message.REQUEST:
            self.feed(events.LockRequested(key), peer, telling)
        elif word is Message.WORKING:
            self.feed(events.BusyReported(key, telling.busy_ns, 0), peer, telling)
        else:
            again = word is Message.RELEASE_ASKING
            busy_ns = telling.busy_ns if peer.kind is Kind.COUNTING else None
            self.feed(events.LockReleased(key, busy_ns, 0, again, telling.grant), peer, telling)

    def feed(self, event: events.Event, sender: Peer | None = None, telling: Telling | None = None) -> None:
        if sender is not None and telling is not None:
            self.received(sender, telling)
        if isinstance(event, events.SchedulingSet):
            self.now_ns += 1  # an operator's word comes in a round of its own
            for peer in self.peers:
                self.switched(peer, event.on)
        self.recent.append(f"{self.now_ns}: {event}")
        for effect in self.core.handle(event, self.now_ns):
            self.perform(effect, event)
        self.now_ns += isinstance(event, events.SchedulingSet)
        self.check_all()

    def received(self, peer: Peer, telling: Telling) -> None:
        """The table's word on what becomes of the daemon's view."""
        word = telling.word
        if word is Message.LOST:
            on = self.core.on
            peer.grant = Grant.OFF if not on else Grant.ASKED if telling.wants else Grant.RELEASED
            if on and telling.holds:
                peer.grant = Grant.GRANTED  # a drop that goes on is told again
            return
        if word in (Message.RELEASE, Message.RELEASE_ASKING):
            if peer.recalls:
                peer.recalls -= 1
                if peer.recalls:
                    return
            elif telling.grant and telling.grant != peer.grants_sent + 1:
                word = Message.CROSSED
                self.crossed += 1
        elif word is Message.WORKING and peer.grant in (Grant.RELEASED, Grant.ASKED):
            if not peer.granted_since_switch:
                return
            self.found += 1
        to = DAEMON[peer.kind][peer.grant, word].to
        assert to is not None
        peer.grant = to

    def switched(self, peer: Peer, on: bool) -> None:
        if peer.grant is Grant.GONE or on == self.core.on:
            return
        if peer.kind is Kind.OLD:
            peer.recalls += on or peer.grant in (Grant.GRANTED, Grant.DROPPED, Grant.DROPPED_ASKING)
        peer.granted_since_switch = False

    def perform(self, effect: effects.Effect, event: events.Event) -> None:
        peer = next((one for one in self.peers if one.key == effect.client), None)
        if peer is None:
            if effect.client in self.severed:
                return  # said to a connection that has ended, as the daemon will hear
            raise LostError(f"seed {self.seed}, step {self.steps}: {effect} of {event} for who is gone")
        if isinstance(effect, effects.SendScheduling):
            self.tell_scheduling(peer, effect.on, event)
        elif isinstance(effect, effects.Grant):
            peer.grants_sent += 1
            peer.granted_since_switch = True
            self.grants += 1
            self.tell(peer, Message.LOCK_OK)
        elif isinstance(effect, effects.Drop):
            self.tell(peer, Message.DROP)
        elif isinstance(effect, effects.Greet):
            peer.grants_sent += 1
            peer.recalls += 1
            self.tell(peer, Message.LOCK_OK)
            self.tell(peer, Message.DROP)

    def tell_scheduling(self, peer: Peer, on: bool, event: events.Event) -> None:
        word = Message.SCHED_ON if on else Message.SCHED_OFF
        if not isinstance(event, events.SchedulingSet):
            peer.down.append(ANSWERED)
            peer.down.append(word)
            if peer.grant is Grant.RELEASED and not on:
                peer.grant = Grant.OFF
            return
        if peer.kind is Kind.OLD:
            peer.down.append(Message.DROP)
        self.tell(peer, word)

    def tell(self, peer: Peer, word: Message) -> None:
        to = DAEMON[peer.kind][peer.grant, word].to
        if to is None and self.by_table:
            self.fail(peer, f"is sent {word} while {peer.grant}")
        peer.grant = to or peer.grant
        peer.down.append(word)

    # ---- what must hold ------------------------------------------------------------------------------

    def check_all(self) -> None:
        for peer in self.peers:
            self.check(peer)

    def check(self, peer: Peer) -> None:
        fault = find_fault(peer, self.core, self.by_table)
        if fault:
            self.fail(peer, fault)

    # ---- calm ----------------------------------------------------------------------------------------

    def calm(self) -> None:
        """All messages arrive and all clients behave: every waiting client is granted, and none is lost."""
        if not self.core.on:
            self.feed(events.SchedulingSet(True))
        for pod in PODS:  # debts may take minutes to be repaid
            self.feed(events.LimitsSet(pod, "ctl", None, self.random.choice((90, 100))))
            self.feed(events.LimitsSet(pod, "ctl", None, 100))
        waiting = [peer for peer in self.peers if peer.waiting]
        before = {peer: peer.grants_read for peer in waiting}
        until_ns = self.now_ns + CALM_NS
        while self.now_ns < until_ns:
            self.deliver()
            for peer in self.peers:
                peer.drain()
                peer.work()
                peer.ask()
                if peer.believes and peer in before and peer.grants_read > 0:
                    del before[peer]
                peer.go_in()
                peer.idle()
            if not before and not any(peer.waiting for peer in self.peers):
                break
            self.let_pass(20 * MS)
        for _ in range(4):  # what they hold or drain ends, whatever is still under way
            self.deliver()
            for peer in self.peers:
                peer.drain()
                peer.work()
        self.deliver()
        for peer in waiting:
            if peer.waiting:
                self.fail(peer, f"has waited for {CALM_NS // SECOND} s among well-behaved clients")
        for peer in self.peers:
            client = self.core.clients[peer.key]
            if peer.believes != client.holds:
                self.fail(peer, "is in doubt with nothing under way")

    def deliver(self) -> None:
        while any(peer.up or peer.reads() for peer in self.peers):
            for peer in list(self.peers):
                while peer.up:
                    self.take(peer, peer.up.popleft())
                while peer.reads():
                    peer.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=1_000_000, help="in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--each", type=int, default=100_000, help="steps of one seed (default: %(default)s)")
    options = parser.parse_args()
    began_s, done, crossed, found, grants = time.monotonic(), 0, 0, 0, 0
    seed = options.seed
    while done < options.steps:
        walk = Walk(seed, quick_core)
        try:
            walk.walk(min(options.each, options.steps - done))
        except LostError as failure:
            print(failure, flush=True)
            return 1
        done, crossed, found, grants = (
            done + walk.steps,
            crossed + walk.crossed,
            found + walk.found,
            grants + walk.grants,
        )
        seed += 1
        if done % 1_000_000 < options.each:
            print(f"{done} steps, {done / (time.monotonic() - began_s):.0f}/s", flush=True)
    print(
        f"{done} steps in {time.monotonic() - began_s:.0f} s: {grants} grants, {crossed} releases that had"
        f" crossed one, {found} holds lost and found; nobody was lost or forgotten"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
