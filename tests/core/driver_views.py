"""What the clients of a driven core believe, from what they were told alone."""

from __future__ import annotations

from typing import Final

from nvshare.core import events

MS: Final = 1_000_000
SECOND: Final = 1_000_000_000
GIB: Final = 1 << 30

ANY_AMOUNT: Final = 1 << 62
RULES: Final = {
    "effect for who is gone": "an effect names a client that is connected",
    "grant": "a grant is for who asked, or is being dropped",
    "drop": "a drop is for who holds and was not dropped already",
    "wait for memory": "only who waits is told to wait for memory",
    "memory available": "only who was told to wait for memory is told that there is some",
    "lease": "a lease is for who can have one, with a new number",
    "recall": "a recall names the lease that its client has",
    "answer": "an answer about memory answers one question, and refuses nothing where there is no limit",
    "no answer": "every question about memory is answered in time",
    "hints": "hints are for clients that understand them",
    "memory limit": "nothing that clients are told lets their pod have more than its limit",
    "lease left": "where a pod could have more than its limit, every lease that leaves room is recalled",
    "exclusive": "a tenant with a quota runs alone, but for those that fill its gaps",
    "fits": "what runs together fits in memory",
    "serial": "in serial mode those without quotas run one at a time",
    "snapshot": "the snapshot shows clients as they know themselves",
    "told percent": "clients know their quota",
    "limits": "the limits in force are those that were set",
    "books": "the charge of a pod with a memory limit covers what it uses, and no more than it could",
    "claims": "no honest word on memory is doubted",
    "off": "turning scheduling off leaves nothing behind, and everybody is told",
    "no deadline": "while anybody waits there is a deadline",
    "spin": "a deadline is in the future, and does something",
    "twin": "a core that is never looked at, and whose deadlines come with events, decides the same",
    "waiting": "whoever waits among well-behaved clients is granted within the bound",
    "waiting on several GPUs": "the same for a pod on several GPUs, for which others may spin",
    "share": "whoever keeps asking gets its share",
    "share of several GPUs": "the same beside a pod on several GPUs, which is never kept waiting for long",
}

NOT_PROMISED: Final = frozenset({"share of several GPUs"})
"""Progress comes first there: such a pod is let in beside others after half a second."""

SOURCES: Final = ("ctl", "user", "run", "annotation", "env", "default")
CEILING: Final = "ceiling"


class BrokenRuleError(AssertionError):
    """The core broke a rule. ``rule`` names it, so that a shorter sequence can be seen to break the same."""

    def __init__(self, rule: str, text: str) -> None:
        super().__init__(f"{rule}: {text}")
        self.rule = rule


class ClientView:
    """One process on one GPU."""

    __slots__ = (
        "answered_seq",
        "asking",
        "busy_ns",
        "connected",
        "dropping",
        "generation",
        "granted",
        "granted_ns",
        "holds",
        "idle",
        "key",
        "lease_bytes",
        "leased",
        "manners",
        "recalled",
        "recalls",
        "seq",
        "tenant",
        "told_bytes",
        "told_on",
        "told_percent",
        "used_bytes",
        "version",
        "wait_for_memory_sent",
        "wanted_ns",
        "wants",
    )

    def __init__(self, key: int, tenant: TenantView, version: int) -> None:
        self.key = key
        self.tenant = tenant
        self.version = version
        self.connected = True
        self.wants = self.holds = self.dropping = self.idle = False
        self.wanted_ns = self.granted_ns = self.busy_ns = 0
        self.told_on: bool | None = None
        self.told_percent = 100
        self.wait_for_memory_sent = False
        self.recalls = 0  # releases it owes for having been switched off or on, not for a hold
        self.manners = 0  # how it behaves; whoever drives it gives it a meaning
        # memory
        self.used_bytes = 0
        self.told_bytes = ANY_AMOUNT  # of a client that cannot ask
        self.leased = self.recalled = False
        self.lease_bytes = 0
        self.generation = 0
        self.seq = self.answered_seq = 0
        self.asking: dict[int, tuple[int, int]] = {}  # number -> bytes, when
        self.granted: dict[int, int] = {}  # number -> bytes it may allocate, not reported yet

    @property
    def asks(self) -> bool:
        return self.version >= 3

    def possible_bytes(self) -> int:
        """What it could have allocated by now without another word."""
        own_bytes = self.used_bytes + sum(self.granted.values())
        if not self.asks:
            told_bytes = self.told_bytes if self.told_bytes > 1 else 0  # 0 would mean no limit at all
            return max(own_bytes, told_bytes)
        return max(own_bytes, self.lease_bytes) if self.leased else own_bytes

    def let_go(self, now_ns: int) -> None:
        if self.holds:
            self.holds = self.dropping = self.idle = False
            self.tenant.hold_ended(now_ns)


class TenantView:
    """A pod on one GPU."""

    __slots__ = (
        "clients",
        "gpu",
        "held_ns",
        "held_since_ns",
        "holding",
        "kernel_at_grant_ns",
        "kernel_ns",
        "limit_bytes",
        "percent",
        "pod",
        "share",
    )

    def __init__(self, pod: str, gpu: str) -> None:
        self.pod = pod
        self.gpu = gpu
        self.clients: dict[int, ClientView] = {}
        self.limit_bytes = 0
        self.percent = 100
        self.share = False
        self.holding = 0
        self.held_ns = self.held_since_ns = 0
        self.kernel_ns = self.kernel_at_grant_ns = 0

    def hold_began(self, now_ns: int) -> None:
        if self.holding == 0:
            self.held_since_ns = now_ns
            self.kernel_at_grant_ns = self.kernel_ns
        self.holding += 1

    def hold_ended(self, now_ns: int) -> None:
        self.holding -= 1
        if self.holding == 0:
            self.held_ns += now_ns - self.held_since_ns

    def held_until(self, now_ns: int) -> int:
        """How long any of its clients held, up to now."""
        return self.held_ns + (now_ns - self.held_since_ns if self.holding else 0)

    @property
    def open(self) -> bool:
        """Any of its clients may launch."""
        return self.holding > 0 and any(c.holds and not c.dropping for c in self.clients.values())

    @property
    def waits(self) -> bool:
        return any(client.wants for client in self.clients.values())

    def possible_bytes(self) -> int:
        return sum(client.possible_bytes() for client in self.clients.values())

    def used_bytes(self) -> int:
        return sum(client.used_bytes for client in self.clients.values())


class PodWords:
    """Whose word counts on a pod's limits: written from the documentation, not from the core."""

    def __init__(self) -> None:
        self._words: dict[str, dict[str, events.LimitsSet]] = {}

    def put(self, word: events.LimitsSet) -> None:
        self._words.setdefault(word.pod, {})[word.source] = word

    def apply(self, tenant: TenantView) -> None:
        words = self._words.get(tenant.pod, {})
        said = [words[source] for source in SOURCES if source in words]
        tenant.percent = next((w.core_percent for w in said if w.core_percent is not None), 100)
        tenant.share = next((w.share for w in said if w.share is not None), False)
        tenant.limit_bytes = self._memory_bytes([w for w in said if w.memory_bytes is not None])
        ceiling = words.get(CEILING)
        if ceiling is not None and ceiling.memory_bytes:
            tenant.limit_bytes = min(tenant.limit_bytes or ceiling.memory_bytes, ceiling.memory_bytes)
        if ceiling is not None and ceiling.core_percent is not None:
            tenant.percent, tenant.share = min(tenant.percent, ceiling.core_percent), False

    def _memory_bytes(self, said: list[events.LimitsSet]) -> int:
        by_hand = [word for word in said if word.source in ("ctl", "user")]
        if by_hand:
            return by_hand[0].memory_bytes or 0
        if any(word.source in ("run", "annotation") for word in said):
            said = [word for word in said if word.source != "default"]
        return min((word.memory_bytes for word in said if word.memory_bytes), default=0)
