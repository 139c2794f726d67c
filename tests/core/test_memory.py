"""Leases and reservations: not one byte over the limit, whatever the order of messages."""

from __future__ import annotations

from random import Random

import pytest

from nvshare.core.effects import Effect, GrantLease, RecallLease, Refused, Reserved, SendMemoryLimit
from nvshare.core.memory import RECALL_TIMEOUT_NS, MemoryAccount

MIB = 1 << 20
LIMIT = 100 * MIB


def test_one_process_decides_alone() -> None:
    out: list[Effect] = []
    MemoryAccount(LIMIT).join(1, True, 0, out)
    assert out == [GrantLease(1, 1, LIMIT)]


def test_no_limit_no_questions() -> None:
    out: list[Effect] = []
    account = MemoryAccount(0)
    account.join(1, True, 0, out)
    account.join(2, True, 0, out)
    assert out == [GrantLease(1, 1, None), GrantLease(2, 1, None)]


def test_a_second_process_recalls_the_lease_to_what_is_used() -> None:
    out: list[Effect] = []
    account = MemoryAccount(LIMIT)
    account.join(1, True, 0, out)
    account.join(2, True, 0, out)
    assert out[-1] == RecallLease(1, 1)
    out.clear()
    account.ask(2, 1, 10 * MIB, 0, out)
    assert out == [], "nobody is answered before the lease is back"
    account.lease_returned(1, 1, 95 * MIB, 0, out)
    assert out == [Refused(2, 1, LIMIT, 95 * MIB, 10 * MIB)]
    out.clear()
    account.ask(2, 2, 5 * MIB, 0, out)
    assert out == [Reserved(2, 2, 5 * MIB, 100 * MIB)]
    out.clear()
    account.ask(1, 1, 0, 0, out)
    assert out == [Reserved(1, 1, 0, 100 * MIB)], "who asks for nothing learns what the pod has"


def test_a_lease_that_does_not_come_back_is_waited_for_five_seconds() -> None:
    out: list[Effect] = []
    account = MemoryAccount(LIMIT)
    account.join(1, True, 0, out)
    account.join(2, True, 0, out)
    account.ask(2, 1, MIB, 0, out)
    out.clear()
    assert account.deadline_ns() == RECALL_TIMEOUT_NS
    account.expire(RECALL_TIMEOUT_NS - 1, out)
    assert out == []
    account.expire(RECALL_TIMEOUT_NS, out)
    assert out == [Refused(2, 1, LIMIT, LIMIT, MIB)]


def test_a_report_replaces_what_it_accounts_for_and_nothing_else() -> None:
    out: list[Effect] = []
    account = MemoryAccount(LIMIT)
    for client in (1, 2):
        account.join(client, True, 0, out)
    account.lease_returned(1, 1, 0, 0, out)
    account.ask(1, 1, 10 * MIB, 0, out)
    account.ask(1, 2, 20 * MIB, 0, out)
    assert account.charged_bytes == 30 * MIB
    account.report(1, 10 * MIB, 1, 0, out)  # sent before the second answer arrived
    assert account.charged_bytes == 30 * MIB
    account.report(1, 30 * MIB, 2, 0, out)
    assert account.charged_bytes == 30 * MIB
    account.report(1, 0, 2, 0, out)
    assert account.charged_bytes == 0


def test_memory_counts_until_the_process_is_gone() -> None:
    out: list[Effect] = []
    account = MemoryAccount(LIMIT)
    account.join(1, True, 0, out)
    account.disconnect(1)
    account.join(2, True, 0, out)
    out.clear()
    account.ask(2, 1, MIB, 0, out)
    assert out == [Refused(2, 1, LIMIT, LIMIT, MIB)], "it may still allocate up to its lease"
    out.clear()
    account.leave(1, 0, out)
    assert out == [GrantLease(2, 1, LIMIT)], "alone again: a lease again"


def test_lowering_evicts_nothing_and_refuses_the_next() -> None:
    out: list[Effect] = []
    account = MemoryAccount(LIMIT)
    account.join(1, True, 0, out)
    account.report(1, 80 * MIB, 0, 0, out)
    out.clear()
    account.set_limit(50 * MIB, 0, out)
    assert out == [SendMemoryLimit(1, 50 * MIB), GrantLease(1, 2, 50 * MIB)]
    assert account.used_bytes == 80 * MIB


def test_clients_that_cannot_ask_are_sent_their_part() -> None:
    out: list[Effect] = []
    account = MemoryAccount(LIMIT)
    account.join(1, False, 0, out)
    assert out == [SendMemoryLimit(1, LIMIT)]
    account.report(1, 40 * MIB, 0, 0, out)
    out.clear()
    account.join(2, False, 0, out)
    assert out == [SendMemoryLimit(1, 70 * MIB), SendMemoryLimit(2, 30 * MIB)]
    assert account.charged_bytes == LIMIT


def test_bounds_on_what_waits() -> None:
    out: list[Effect] = []
    account = MemoryAccount(LIMIT)
    account.join(1, True, 0, out)
    account.join(2, True, 0, out)
    out.clear()
    for seq in range(1, 201):
        account.ask(2, seq, 1, 0, out)
    assert len([effect for effect in out if isinstance(effect, Refused)]) == 200 - 64


class _Process:
    """A process that allocates what it may, the moment it may, and is slow to read its messages."""

    def __init__(self, key: int) -> None:
        self.key = key
        self.used = 0
        self.lease: int | None = 0
        self.generation = 0
        self.seq = 0
        self.asked: dict[int, int] = {}
        self.inbox: list[Effect] = []


@pytest.mark.parametrize("seed", range(40))
def test_zero_over_admission_under_any_interleaving(seed: int) -> None:
    """Messages travel in order but at any speed; what is really allocated never exceeds the limit."""
    random = Random(seed)
    account = MemoryAccount(LIMIT)
    processes: dict[int, _Process] = {}
    to_daemon: list[tuple[int, str, tuple[int, int]]] = []
    now_ns, next_key = 0, 1

    def deliver(out: list[Effect]) -> None:
        for effect in out:
            if effect.client in processes:
                processes[effect.client].inbox.append(effect)

    for _ in range(600):
        out: list[Effect] = []
        now_ns += random.choice((0, 1, 10**8, 6 * 10**9))
        account.expire(now_ns, out)
        move = random.random()
        if move < 0.08 and len(processes) < 4:
            processes[next_key] = _Process(next_key)
            account.join(next_key, True, now_ns, out)
            next_key += 1
        elif move < 0.12 and processes:
            key = random.choice(list(processes))
            del processes[key]
            to_daemon = [message for message in to_daemon if message[0] != key]
            account.leave(key, now_ns, out)
        elif move < 0.5 and to_daemon:
            _receive(account, to_daemon, random, now_ns, out)
        elif processes:
            _live(random.choice(list(processes.values())), random, to_daemon)
        deliver(out)
        total = sum(process.used for process in processes.values())
        assert total <= LIMIT, f"{total} bytes allocated under a limit of {LIMIT}"
    assert next_key > 2


def _receive(
    account: MemoryAccount,
    messages: list[tuple[int, str, tuple[int, int]]],
    random: Random,
    now_ns: int,
    out: list[Effect],
) -> None:
    """The daemon reads the oldest message of one of its clients."""
    sender = random.choice(messages)[0]
    message = next(message for message in messages if message[0] == sender)
    messages.remove(message)
    _, kind, values = message
    if kind == "ask":
        account.ask(sender, *values, now_ns, out)
    elif kind == "report":
        account.report(sender, *values, now_ns, out)
    else:
        account.lease_returned(sender, *values, now_ns, out)


def _live(process: _Process, random: Random, outbox: list[tuple[int, str, tuple[int, int]]]) -> None:
    size = random.choice((1, 7, 30)) * MIB
    if process.inbox and random.random() < 0.5:
        effect = process.inbox.pop(0)
        if isinstance(effect, GrantLease):
            process.lease, process.generation = effect.lease_bytes, effect.generation
        elif isinstance(effect, RecallLease):
            process.lease = 0  # from now on it asks
            outbox.append((process.key, "return", (effect.generation, process.used)))
        elif isinstance(effect, Reserved):
            process.used += process.asked.pop(effect.seq)
            outbox.append((process.key, "report", (process.used, effect.seq)))
        elif isinstance(effect, Refused):
            del process.asked[effect.seq]
    elif process.lease and process.used + size <= process.lease:
        process.used += size
    elif process.lease == 0 and len(process.asked) < 5:
        process.seq += 1
        process.asked[process.seq] = size
        outbox.append((process.key, "ask", (process.seq, size)))
    elif process.used and not process.asked:
        process.used -= min(process.used, size)
        outbox.append((process.key, "report", (process.used, process.seq)))


def test_a_client_that_must_ask_is_sent_the_limit() -> None:
    out: list[Effect] = []
    account = MemoryAccount(LIMIT)
    account.join(1, True, 0, out)
    account.join(2, True, 0, out)
    assert out == [GrantLease(1, 1, LIMIT), SendMemoryLimit(2, LIMIT), RecallLease(1, 1)]


def test_a_lost_connection_without_a_lease_stays_charged_what_it_used() -> None:
    out: list[Effect] = []
    account = MemoryAccount(LIMIT)
    account.join(1, True, 0, out)
    account.join(2, True, 0, out)
    account.lease_returned(1, 1, 3 * MIB, 0, out)
    account.disconnect(1)
    account.set_limit(2 * LIMIT, 0, out)
    assert account.shares[1].charge_bytes == 3 * MIB, "it cannot take more without asking"
