"""Figures of pods that have left: kept, bounded, and never changed."""

from __future__ import annotations

from collections.abc import Callable

from nvshare.core import events
from nvshare.core.books.figures import DEPARTED_MAX, EXPIRED_AT_ONCE, Departed
from nvshare.core.books.pod_figures import HERE, PodFigures, PodTotals
from nvshare.core.view.checkpoint import DEPARTED_SAVED
from nvshare.core.view.observe import observe, unpack
from tests.core.bench import GPU, MS, SECOND, Bench


def test_a_pod_that_comes_back_goes_on_counting() -> None:
    bench = Bench()
    bench.client(1, "a")
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.do(events.LockReleased(1, busy_ns=10 * MS))
    assert bench.of("a")[1].figures.left_ns == HERE
    bench.do(events.ProcessGone(1))
    left_ns = bench.now_ns
    bench.pass_ms(1500)
    copy = bench.look()
    assert copy.tenants == []
    [(pod, tally)] = copy.departed
    assert (pod, tally.gpu_time_ns, tally.billed_ns, tally.left_ns) == ("a", 10 * MS, 10 * MS, left_ns)
    bench.client(2, "a")
    figures = bench.of("a")[1].figures
    assert (figures.gpu_time_ns, figures.billed_ns) == (10 * MS, 10 * MS)
    bench.do(events.ProcessGone(2))
    bench.pass_ms(1500)
    assert bench.look(ttl_ns=SECOND).departed == []
    assert bench.look().departed == [], "forgotten is forgotten"


def test_totals_of_departed_pods_are_bounded_in_the_checkpoint() -> None:
    bench = Bench()
    departed = bench.scheduler.gpus[GPU].figures.departed
    for number in range(DEPARTED_SAVED + 10):
        departed.restore(f"pod-{number}", PodTotals(number, 1, 2, 3, (0,) * 8 + (1,), 4, 5, number, 6))
    bench.client(1, "here")
    saved = bench.scheduler.checkpoint(bench.now_ns)
    assert len(saved.departed) == DEPARTED_SAVED
    successor = Bench()
    successor.do(events.Restored(saved))
    copy = successor.look(ttl_ns=1 << 60)
    assert [pod for pod, _ in copy.departed] == [f"pod-{number}" for number in range(10, DEPARTED_SAVED + 10)]
    _, last = copy.departed[-1]
    assert (last.gpu_time_ns, last.wait_counts[-1], last.wait_sum_ns, last.last_worked_ns) == (265, 1, 4, 5)
    assert last.billed_ns == 6


def test_departed_pods_are_bounded() -> None:
    departed = Departed()
    for number in range(DEPARTED_MAX + 10):
        tally = PodFigures()
        tally.left_ns = number
        departed.put(f"pod-{number}", tally)
    pods = list(departed.figures())
    assert (len(pods), pods[0]) == (DEPARTED_MAX, "pod-10"), "the first to leave are the first forgotten"
    for _ in range(DEPARTED_MAX // EXPIRED_AT_ONCE):
        departed.expire(DEPARTED_MAX)
    assert next(iter(departed.figures())) == f"pod-{DEPARTED_MAX}"


def test_a_view_of_departed_pods_does_not_change() -> None:
    """Nothing is copied for a reader, and what a reader has does not change."""
    departed = Departed()
    for number in range(3):
        departed.put(f"pod-{number}", PodFigures())
    seen = departed.figures()
    assert departed.figures() is seen, "as long as nothing changes"
    changes: list[tuple[Callable[[], object], list[str]]] = [
        (lambda: departed.put("late", PodFigures()), ["pod-0", "pod-1", "pod-2", "late"]),
        (lambda: departed.take("pod-1"), ["pod-0", "pod-2", "late"]),
        (lambda: departed.expire(HERE + 1), []),
    ]
    before = list(seen)
    for change, after in changes:
        change()
        assert list(seen) == before
        assert list(departed.figures()) == after
        seen, before = departed.figures(), after
    departed.take("a stranger")
    departed.expire(0)
    assert departed.figures() is seen, "nothing was changed"


def test_a_copy_of_a_departed_pod_does_not_change_when_the_pod_is_back() -> None:
    """Figures of departed pods are read after the moment of the snapshot."""
    bench = Bench()
    bench.client(1, "a")
    bench.do(events.LockRequested(1))
    bench.pass_ms(10)
    bench.do(events.LockReleased(1, busy_ns=10 * MS))
    bench.do(events.ProcessGone(1))
    bench.pass_ms(1500)
    taken = observe(bench.scheduler.gpus[GPU], 0, bench.now_ns)
    left_ns = taken.raw_departed["a"].left_ns
    bench.client(2, "a")
    bench.do(events.LockRequested(2))
    bench.pass_ms(20)
    bench.do(events.LockReleased(2, busy_ns=20 * MS))
    [(pod, tally)] = unpack(taken).departed
    assert (pod, tally.gpu_time_ns, tally.left_ns, sum(tally.wait_counts)) == ("a", 10 * MS, left_ns, 1)
    now = bench.of("a")[1].figures
    assert (now.gpu_time_ns, now.left_ns, sum(now.wait_counts)) == (30 * MS, HERE, 2), "and it goes on"
