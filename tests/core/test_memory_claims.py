"""What a process says of its memory counts as far as it can be true, and no honest word is doubted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nvshare.core import effects, events
from nvshare.core.memory_claims import OVERSUBSCRIBED
from nvshare.core.violations import Violation

from .clients import GIB, SECOND, Clients

HUGE = 1 << 63


def claimed(clients: Clients, version: int, how: str) -> None:
    """A process of the pod says, in one of the ways there are, that it has allocated an immense amount."""
    key = clients.register("liar", version=version)
    if how == "used":
        clients.feed(events.MemoryUsed(key, HUGE))
    elif how == "reserved":
        clients.register("liar")
        clients.feed(events.LeaseReturned(key, 1, 0))
        clients.feed(events.MemoryRequested(key, 1, HUGE))
        clients.feed(events.MemoryRequested(key, 2, GIB))
        clients.feed(events.MemoryUsed(key, HUGE, 2))
    elif how == "returned":
        sibling = clients.register("liar")
        clients.feed(events.LeaseReturned(key, 1, HUGE))
        clients.feed(events.MemoryUsed(sibling, HUGE))
    elif how == "resumed":
        clients.feed(events.ClientDisconnected(key))
        clients.feed(events.ClientResumed(99, "liar", "GPU-0", key, False, True, 0, HUGE, 1, HUGE))
    elif how == "restarted":
        clients.restart(SECOND)
        clients.come_back(1)
        clients.feed(events.ClientResumed(99, "liar", "GPU-0", key, False, True, 0, HUGE))
    elif how == "many":
        for _ in range(8):
            clients.feed(events.MemoryUsed(clients.register("liar"), HUGE))


@pytest.mark.parametrize(
    ("version", "how"),
    [
        (3, "used"),
        (2, "used"),
        (3, "reserved"),
        (3, "returned"),
        (3, "resumed"),
        (3, "restarted"),
        (3, "many"),
    ],
)
def test_a_pod_that_claims_more_than_its_limit_displaces_nobody(version: int, how: str) -> None:
    clients = Clients()
    clients.limit("liar", memory_bytes=GIB)
    neighbour = clients.register("neighbour", used_bytes=12 * GIB)
    clients.ask(neighbour)
    claimed(clients, version, how)
    clients.ask(clients.register("liar"))
    clients.run(20 * SECOND)
    assert clients.holders() >= {"neighbour", "liar"}, "both fit"
    assert clients.gpu().wait_queue_clients == 0
    assert not clients.gpu().overloaded
    assert clients.tenant("liar").used_bytes <= GIB
    figures = clients.core.gpus["GPU-0"].tenants["liar"].figures
    assert figures.claims_cut > 0
    assert Violation.MEMORY in {notice.violation for notice in clients.core.notices.take()}


def test_without_a_limit_a_claim_counts_like_the_whole_card() -> None:
    """Its slices are as long as those of one that really fills the card."""
    slices = []
    for used_bytes in (16 * GIB, HUGE):
        clients = Clients()
        clients.ask(clients.register("neighbour", used_bytes=12 * GIB))
        key = clients.register("liar")
        clients.feed(events.MemoryUsed(key, used_bytes))
        clients.ask(key)
        clients.run(400 * SECOND)
        slices.append((clients.gpu().slice_ns, round(clients.percents(2000 * SECOND)["neighbour"])))
    assert slices[0] == slices[1]


def test_paged_memory_of_several_cards_is_no_lie() -> None:
    clients = Clients()
    key = clients.register("big")
    clients.feed(events.MemoryUsed(key, 3 * 16 * GIB))
    assert clients.tenant("big").used_bytes == 3 * 16 * GIB
    clients.feed(events.MemoryUsed(key, OVERSUBSCRIBED * 16 * GIB + 1))
    assert clients.tenant("big").used_bytes == OVERSUBSCRIBED * 16 * GIB


def honest(clients: Clients, pod: str, used_bytes: int) -> None:
    tenant = clients.core.gpus["GPU-0"].tenants[pod]
    assert tenant.footprint.used_bytes == used_bytes
    assert tenant.figures.claims_cut == 0


def test_what_was_allocated_before_a_limit_was_lowered_is_believed() -> None:
    """Its report was under way, or it had not read of the new limit yet."""
    clients = Clients()
    clients.limit("pod", memory_bytes=10 * GIB)
    key = clients.register("pod")
    clients.limit("pod", memory_bytes=GIB)
    clients.feed(events.MemoryUsed(key, 8 * GIB))
    honest(clients, "pod", 8 * GIB)
    clients.limit("pod", memory_bytes=2 * GIB)
    clients.feed(events.MemoryUsed(key, 9 * GIB))
    honest(clients, "pod", 9 * GIB)
    sibling = clients.register("pod")  # now it must ask
    clients.feed(events.LeaseReturned(key, clients.core.clients[key].tenant.memory.shares[key].generation, 0))
    clients.feed(events.MemoryUsed(key, 9 * GIB))
    clients.feed(events.MemoryUsed(sibling, 9 * GIB))
    assert clients.tenant("pod").used_bytes == 2 * GIB, "and both had nothing"


def test_what_was_allocated_before_there_was_a_limit_is_believed() -> None:
    clients = Clients()
    first, second = clients.register("pod"), clients.register("pod")
    told = clients.limit("pod", memory_bytes=GIB)
    recalled = {
        effect.client: effect.generation for effect in told if isinstance(effect, effects.RecallLease)
    }
    clients.feed(events.MemoryUsed(first, 7 * GIB))
    clients.feed(events.LeaseReturned(first, recalled[first], 8 * GIB))
    clients.feed(events.LeaseReturned(second, recalled[second], 4 * GIB))
    honest(clients, "pod", 12 * GIB)
    clients.feed(events.MemoryUsed(first, 3 * GIB))
    honest(clients, "pod", 7 * GIB)
    clients.feed(events.MemoryUsed(first, 8 * GIB))
    assert clients.tenant("pod").used_bytes == 7 * GIB, "it asks for more, and is refused"


@pytest.mark.parametrize("written_down", [True, False])
def test_the_previous_daemon_knew_what_a_process_has(written_down: bool) -> None:
    """More than the limit, which had been lowered. Daemons before did not write it down."""
    clients = Clients()
    clients.limit("pod", memory_bytes=10 * GIB)
    key = clients.register("pod", used_bytes=8 * GIB)
    clients.limit("pod", memory_bytes=GIB)
    checkpoint = clients.core.checkpoint(clients.now_ns)
    if not written_down:
        records = tuple(replace(record, memory_bytes=0) for record in checkpoint.clients)
        checkpoint = replace(checkpoint, clients=records)
    clients.restart(SECOND, checkpoint)
    clients.come_back(key)
    assert clients.tenant("pod").used_bytes == (8 * GIB if written_down else GIB)


def test_what_one_may_have_that_is_not_back_is_not_promised_to_others() -> None:
    clients = Clients()
    clients.limit("pod", memory_bytes=10 * GIB)
    clients.register("pod", used_bytes=7 * GIB)
    clients.restart(SECOND)
    clients.run(30 * SECOND)
    sibling = clients.register("pod")
    told = clients.feed(events.MemoryRequested(sibling, 1, 4 * GIB))
    assert [type(effect) for effect in told] == [effects.Refused]
    sent = clients.feed(events.ClientRegistered(77, "pod", "GPU-0", 2))
    assert effects.SendMemoryLimit(77, 1) in sent


def test_restarts_do_not_raise_what_a_pod_is_believed() -> None:
    """Each process said that it had the whole limit, and the next daemon added that up."""
    clients = Clients()
    clients.limit("liar", memory_bytes=GIB)
    neighbour = clients.register("neighbour", used_bytes=8 * GIB)
    liars = [clients.register("liar", used_bytes=GIB) for _ in range(20)]
    for _ in range(3):
        clients.restart(SECOND)
        for client in clients.away.values():
            client.used_bytes = HUGE if client.pod == "liar" else client.used_bytes
        neighbour = clients.come_back(neighbour)
        liars = [clients.come_back(liar) for liar in liars]
        assert clients.gpu().overloaded is False
        assert clients.core.clients[liars[0]].tenant.memory.believed_bytes <= GIB


def test_what_a_pod_has_is_believed_to_the_byte_after_a_restart() -> None:
    """It is divided among its processes for the next daemon; one of them was told one byte."""
    clients = Clients()
    has = clients.register("pod", used_bytes=3 * GIB)
    clients.limit("pod", memory_bytes=2 * GIB)
    has = clients.come_back(has)
    clients.register("pod", version=2)
    clients.restart(0)
    has = clients.come_back(has)
    assert clients.core.clients[has].tenant.memory.believed_bytes == 3 * GIB


def test_what_one_process_has_is_not_divided_with_one_that_decides_alone() -> None:
    """The other may have anything, since there was no limit when it was told; what is known stays known."""
    clients = Clients()
    known, other = clients.register("pod", used_bytes=3 * GIB), clients.register("pod")
    clients.limit("pod", memory_bytes=2 * GIB)
    known = clients.come_back(known)
    memory = clients.core.clients[known].tenant.memory
    found = memory.possible_bytes()
    assert found[known] == 3 * GIB, "that is what the next daemon must believe"
    assert found[other] == memory.claims.most_bytes - 3 * GIB


def test_processes_that_decide_alone_are_left_at_least_what_they_have() -> None:
    """Both lived under a higher limit: an even half of that was less than one of them had."""
    clients = Clients()
    clients.limit("pod", memory_bytes=10 * GIB)
    large = clients.register("pod", used_bytes=8 * GIB)
    small = clients.register("pod")
    clients.feed(events.LeaseReturned(large, 1, 8 * GIB))
    clients.feed(events.MemoryUsed(small, GIB))
    clients.limit("pod", memory_bytes=4 * GIB)
    memory = clients.core.clients[large].tenant.memory
    assert all(memory.claims.decides_alone(key) for key in (large, small))
    found = memory.possible_bytes()
    assert found[large] >= 8 * GIB
    assert found[small] >= GIB
    assert sum(found.values()) == memory.claims.most_bytes
