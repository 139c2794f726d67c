"""What a pod's processes were told they may allocate never adds up to more than the pod's limit."""

from __future__ import annotations

from nvshare.core import effects, events

from .clients import GIB, MS, SECOND, Clients

LIMIT = 10 * GIB


def leases(wanted: list[effects.Effect]) -> list[int]:
    return [effect.client for effect in wanted if isinstance(effect, effects.GrantLease)]


def reserve(clients: Clients, key: int, seq: int, gib: int) -> list[effects.Effect]:
    """The answers to a question, without hints and the like."""
    wanted = clients.feed(events.MemoryRequested(key, seq, gib * GIB))
    return [effect for effect in wanted if isinstance(effect, effects.Reserved | effects.Refused)]


def test_a_limit_that_is_set_on_two_processes_is_shared_by_them() -> None:
    """Both were told the limit and neither lost its lease without one: each could have the whole limit."""
    clients = Clients()
    first, second = clients.register("pod"), clients.register("pod")
    told = clients.limit("pod", memory_bytes=LIMIT)
    recalled = {effect.client: effect for effect in told if isinstance(effect, effects.RecallLease)}
    assert set(recalled) == {first, second}, f"{told}"
    clients.feed(events.LeaseReturned(first, recalled[first].generation, 8 * GIB))
    clients.feed(events.LeaseReturned(second, recalled[second].generation, 0))
    assert reserve(clients, second, 1, 5) == [effects.Refused(second, 1, LIMIT, 8 * GIB, 5 * GIB)]
    assert reserve(clients, second, 2, 2) == [effects.Reserved(second, 2, 2 * GIB, LIMIT)]


def test_nobody_is_leased_the_limit_while_one_that_had_it_is_not_back() -> None:
    """After a restart a sibling was leased all of the limit, which another process had already."""
    clients = Clients()
    clients.limit("pod", memory_bytes=LIMIT)
    had_it = clients.register("pod", used_bytes=8 * GIB)
    clients.restart(SECOND)
    clients.last_key += 1
    sibling = clients.last_key
    told = clients.feed(events.ClientRegistered(sibling, "pod", "GPU-0"))
    assert leases(told) == [], f"{told}"
    assert reserve(clients, sibling, 1, 3) == [], "the answer waits for who is not back"
    clients.run(SECOND)
    resumed = clients.feed(events.ClientResumed(99, "pod", "GPU-0", had_it, False, False, 0, 8 * GIB))
    assert effects.Refused(sibling, 1, LIMIT, 8 * GIB, 3 * GIB) in resumed
    assert leases(resumed) == []
    assert reserve(clients, sibling, 2, 2) == [effects.Reserved(sibling, 2, 2 * GIB, LIMIT)]


def test_a_client_that_cannot_ask_is_charged_the_limit_it_was_sent() -> None:
    """It was told 5 GiB, said that it used 1, and the other 4 were given away though it could take them."""
    clients = Clients()
    clients.limit("pod", memory_bytes=LIMIT)
    older = clients.register("pod", version=2)
    asks = clients.register("pod")
    clients.feed(events.MemoryUsed(older, GIB))
    clients.run(MS)
    assert clients.tenant("pod").charged_bytes == 5 * GIB
    assert reserve(clients, asks, 1, 9) == [effects.Refused(asks, 1, LIMIT, 5 * GIB, 9 * GIB)]
    assert reserve(clients, asks, 2, 5) == [effects.Reserved(asks, 2, 5 * GIB, LIMIT)]


def test_a_late_returned_lease_leaves_no_question_unanswered() -> None:
    """One of two returned its lease after 5 s; its next question waited for the other, with no end set."""
    clients = Clients()
    clients.register("pod")
    late = clients.register("pod")
    clients.limit("pod", memory_bytes=LIMIT)
    clients.run(6 * SECOND)
    clients.feed(events.LeaseReturned(late, 1, 0))
    clients.run(SECOND)
    answers = reserve(clients, late, 1, 1)
    due_ns = clients.core.next_deadline_ns()
    assert answers == [effects.Refused(late, 1, LIMIT, LIMIT, GIB)], f"{answers}, next deadline {due_ns}"


def two_processes() -> tuple[Clients, int, int]:
    """One of them has 6 of the limit of 10 GiB, and neither a lease."""
    clients = Clients()
    clients.limit("pod", memory_bytes=LIMIT)
    large, small = clients.register("pod", used_bytes=6 * GIB), clients.register("pod")
    clients.feed(events.LeaseReturned(large, 1, 6 * GIB))
    return clients, large, small


def charged_when_back(clients: Clients, *keys: int) -> list[float]:
    """How many GiB the pod's processes may have together, after each that is back."""
    charged = []
    for key in keys:
        clients.come_back(key)
        clients.run(SECOND)
        charged.append(clients.tenant("pod").charged_bytes / GIB)
    return charged


def test_nobody_is_leased_the_limit_however_late_the_others_are() -> None:
    """Five seconds after a restart the first that was back was leased everything: 16 of 10 GiB in all."""
    clients, large, small = two_processes()
    clients.restart(10 * MS)
    clients.run(6 * SECOND)
    assert charged_when_back(clients, small, large) == [0, 6]


def test_a_process_between_two_connections_is_expected_by_the_next_daemon() -> None:
    """It had none when the checkpoint was taken, so it was not in it: 16 of 10 GiB in all."""
    clients, large, small = two_processes()
    clients.feed(events.ClientDisconnected(large))
    clients.restart(10 * MS)
    assert charged_when_back(clients, small, large) == [0, 6]


def test_what_one_has_that_is_not_back_is_given_to_nobody_however_long_it_takes() -> None:
    """Five seconds after a restart its sibling was granted all of the limit: 16 of 10 GiB in all."""
    clients, large, small = two_processes()
    clients.restart(10 * MS)
    back = clients.come_back(small)
    clients.run(6 * SECOND)
    assert reserve(clients, back, 1, 1) == [effects.Refused(back, 1, LIMIT, LIMIT, GIB)]
    assert charged_when_back(clients, large) == [6]
    assert reserve(clients, back, 2, 4) == [effects.Reserved(back, 2, 4 * GIB, LIMIT)]


def test_a_client_that_cannot_ask_counts_with_its_largest_limit_until_it_is_gone() -> None:
    """It was told that it may have more after the checkpoint: 12 of 8 GiB could be had by the pod."""
    clients = Clients()
    clients.limit("pod", memory_bytes=LIMIT)
    older, other = clients.register("pod", version=2), clients.register("pod", version=2)
    written_down = clients.core.checkpoint(clients.now_ns)
    told = clients.feed(events.ProcessGone(other))
    assert effects.SendMemoryLimit(older, LIMIT) in told
    clients.restart(10 * MS, written_down)
    clients.feed(events.ResumeCancelled(other, "GPU-0"))
    sibling = clients.register("pod")
    clients.run(6 * SECOND)
    assert reserve(clients, sibling, 1, 1) == [effects.Refused(sibling, 1, LIMIT, LIMIT, GIB)]
    gone = clients.feed(events.ResumeCancelled(older, "GPU-0"))
    assert leases(gone) == [sibling]


def test_what_one_that_cannot_ask_took_meanwhile_is_not_given_to_another() -> None:
    """Its report was under way when another came, which was told a part of what was no longer free."""
    clients = Clients()
    clients.limit("pod", memory_bytes=LIMIT)
    first = clients.register("pod", version=2)
    second = clients.register("pod", version=2)
    told = clients.feed(events.MemoryUsed(first, 8 * GIB))
    assert effects.SendMemoryLimit(first, 9 * GIB) in told
    assert effects.SendMemoryLimit(second, GIB) in told


def test_many_questions_are_answered_a_few_at_a_time() -> None:
    """Sixteen thousand answers in one go stopped the daemon for a seventh of a second."""
    clients = Clients()
    clients.limit("pod", memory_bytes=LIMIT)
    holder = clients.register("pod")
    askers = [clients.register("pod") for _ in range(4)]
    for seq in range(1, 41):
        for asker in askers:
            assert reserve(clients, asker, seq, 0) == []
    answered = clients.feed(events.LeaseReturned(holder, 1, 0))
    order = []
    while True:
        here = [effect for effect in answered if isinstance(effect, effects.Reserved)]
        assert len(here) <= 64
        order += [(effect.seq, effect.client) for effect in here]
        if clients.core.next_deadline_ns() != clients.now_ns + 1:
            break
        if len(order) == 64:
            assert reserve(clients, askers[0], 99, 0) == [], "who asks later is answered later"
        clients.now_ns += 1
        answered = clients.feed(events.Woken())
    assert order == [*((seq, asker) for seq in range(1, 41) for asker in askers), (99, askers[0])]


def test_a_request_is_answered_before_its_client_gives_up() -> None:
    """A client decides alone after 5 s; what a lease that was not given back leaves was told too late."""
    clients = Clients()
    clients.limit("pod", memory_bytes=LIMIT)
    clients.register("pod", used_bytes=6 * GIB)
    sibling = clients.register("pod")
    assert reserve(clients, sibling, 1, 5) == []
    clients.run(int(4.5 * SECOND))
    assert clients.core.clients[sibling].tenant.memory.shares[sibling].waiting == [], "it was answered"
