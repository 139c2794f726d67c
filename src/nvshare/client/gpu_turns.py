"""A client's lock: blocks that wait and run, the turn they run in, and the reports of GPU time.

1. A grant lasts over several blocks, until the daemon ends the turn.
2. 2 ms after the last block the daemon learns that nothing runs, so that it bills nothing and may grant the
   GPU to another client. After a second without work the client ends the turn by itself, and at once if no
   block waits for the grant any more.
3. Without a daemon a quota is kept by a rest after each block, in proportion to its length.
"""

from __future__ import annotations

from typing import Final

from nvshare.client.link import Link
from nvshare.wire.messages import MessageType

GAP_NS: Final = 2_000_000
IDLE_NS: Final = 1_000_000_000
REPORT_EVERY_NS: Final = 200_000_000
NEVER_NS: Final = 1 << 62
_NO_SLOTS: Final = (0, 0, 0, 0, 0)
"""The work was just before the report."""
_T = MessageType


class GpuTurns:
    def __init__(self, link: Link, now_ns: int) -> None:
        self._link = link
        self.holds = False
        self.dropping = False
        self.grants = 0
        self.waiting = 0  # blocks that stand at the gate
        self._inside = 0  # blocks that run
        self._wants = False
        self._request_seq = 0
        self._connection_grants = 0  # LOCK_OK on this connection: TURN_ENDED names the grant it ends
        self._held_since_ns = 0
        self._resumes_holding = False
        self._working_since_ns = 0
        self._idle_since_ns = now_ns
        self._idle_reported = False
        self._busy_ns = 0
        self._reported_ns = now_ns
        self._reported_busy_ns = 0
        self._longest_ns = 0
        self._rest_until_ns = 0  # without a daemon

    # ---- the connection ----------------------------------------------------------------------

    def connected(self) -> None:
        self._connection_grants = 0

    def resuming(self, now_ns: int) -> tuple[int, int, int]:
        """For RESUME: for how long it has held the GPU, its GPU time, and the number of its request."""
        self._resumes_holding = self.holds
        held_ns = max(1, now_ns - self._held_since_ns) if self.holds else 0
        return held_ns, self.busy_ns(now_ns), self._request_seq if self._wants else 0

    def resumed(self, now_ns: int) -> None:
        if self._resumes_holding and not self.holds:  # the turn ended while RESUME was on its way
            self.holds = True
            self._end_turn(now_ns)
        elif self._wants:  # perhaps since RESUME was sent; a second request counts as the same
            self._link.send(_T.REQ_LOCK)

    def registered(self) -> None:
        self._wants = False

    def release(self) -> None:
        """Without a message: scheduling is off, or the daemon does not know this client."""
        self.holds = self.dropping = self._wants = False

    def forget(self) -> None:
        """The daemon does not know this client any more."""
        self.release()
        self._busy_ns = 0

    # ---- the gate ----------------------------------------------------------------------------

    def wait(self) -> None:
        self.waiting += 1
        self.request_if_waiting()

    def give_up(self) -> None:
        self.waiting -= 1

    def may_enter(self) -> bool:
        link = self._link
        if link.ungated or link.daemon_ended or not link.scheduling_on or link.runs_unregistered():
            return True
        return self.holds and not self.dropping

    def rests(self, now_ns: int) -> bool:
        """It has used its quota, and no daemon enforces it (rule 3)."""
        return self._keeps_pace() and now_ns < self._rest_until_ns

    def _keeps_pace(self) -> bool:
        link = self._link
        alone = link.ungated or link.daemon_ended or (self.holds and not link.is_ready)
        return alone and link.core_percent < 100 and link.scheduling_on

    def enter(self, now_ns: int) -> bool:
        """Pass the gate if it is open."""
        if not self.may_enter() or self.rests(now_ns):
            self.request_if_waiting()
            return False
        self.waiting -= 1
        self._inside += 1
        if self._inside == 1:
            self._working_since_ns = now_ns
            if self._idle_reported and self.holds and self._link.is_ready:
                self._report_busy(now_ns, 0)
            self._idle_reported = False
        return True

    def leave(self, now_ns: int) -> None:
        self._inside -= 1
        if self._inside:
            return
        worked_ns = now_ns - self._working_since_ns
        self._busy_ns += worked_ns
        self._longest_ns = max(self._longest_ns, worked_ns)
        self._idle_since_ns = now_ns
        self._rest_until_ns = self._working_since_ns + worked_ns * 100 // self._link.core_percent
        if self.dropping:
            self._end_turn(now_ns)

    # ---- turns -------------------------------------------------------------------------------

    def request_if_waiting(self) -> None:
        # While a turn is being dropped, its end carries the next request.
        if not self.waiting or self._wants or self.holds or not self._link.scheduling_on:
            return
        self._wants = True
        self._request_seq += 1
        if self._link.is_ready:
            self._link.send(_T.REQ_LOCK)

    def granted(self, now_ns: int) -> None:
        self._connection_grants += 1
        if not self.holds:
            self.holds = True
            self._held_since_ns = now_ns
            self.grants += 1
        self.dropping = self._wants = False
        self._idle_reported = False
        self._idle_since_ns = now_ns
        if not self.waiting and not self._inside:
            self._end_turn(now_ns)

    def dropped(self, now_ns: int) -> None:
        if self.holds:
            self.dropping = True
            if not self._inside:
                self._end_turn(now_ns)

    def _end_turn(self, now_ns: int) -> None:
        self.holds = self.dropping = False
        self._wants = self.waiting > 0
        if self._wants:
            self._request_seq += 1
        if self._link.is_ready:
            figures = (self._busy_ns, now_ns - self._idle_since_ns, self._longest_ns, int(self._wants))
            grant = self._connection_grants + 1
            self._link.send_numbers(_T.TURN_ENDED, *figures, grant, self._busy_ns)
            self._reported_ns, self._reported_busy_ns = now_ns, self._busy_ns
        self._longest_ns = 0

    # ---- reports -----------------------------------------------------------------------------

    def busy_ns(self, now_ns: int) -> int:
        return self._busy_ns + (now_ns - self._working_since_ns if self._inside else 0)

    def _report_busy(self, now_ns: int, idle_ns: int) -> None:
        """A block is all work, so its billed time is its GPU time."""
        busy_ns = self._reported_busy_ns = self.busy_ns(now_ns)
        self._reported_ns = now_ns
        self._link.send_numbers(_T.BUSY, busy_ns, idle_ns, busy_ns, *_NO_SLOTS)

    def tick(self, now_ns: int) -> None:
        """Do what is due."""
        if self._gap_ns() <= now_ns:
            if self._idle_reported:
                self._end_turn(now_ns)
            else:
                self._idle_reported = True
                self._report_busy(now_ns, now_ns - self._idle_since_ns)
        if self._report_ns() <= now_ns:
            self._report_busy(now_ns, 0 if self._inside else max(1, now_ns - self._idle_since_ns))

    def deadline_ns(self) -> int:
        """When ``tick`` or a waiting block has something to do; NEVER_NS if neither has."""
        rested_ns = self._rest_until_ns if self.waiting and self._keeps_pace() else NEVER_NS
        return min(self._gap_ns(), self._report_ns(), rested_ns)

    def _report_ns(self) -> int:
        """When the next report of GPU time is due."""
        if not self._link.is_ready or not self.holds:
            return NEVER_NS
        if not self._inside and self._busy_ns == self._reported_busy_ns:
            return NEVER_NS
        return self._reported_ns + REPORT_EVERY_NS

    def _gap_ns(self) -> int:
        """When the report that nothing runs is due, or after it the end of the turn (rule 2)."""
        if not self.holds or self.dropping or self._inside or not self._link.is_ready:
            return NEVER_NS
        return self._idle_since_ns + (IDLE_NS if self._idle_reported else GAP_NS)
