"""The driver's memory for a process, in addition to its allocations."""

from __future__ import annotations

from nvshare.exporters.scheduler.overhead import LIGHT_PERCENT, SMALL_BYTES, Overheads

MIB = 1 << 20


def test_the_baseline_follows_nvml_smoothly_while_the_process_is_nearly_idle() -> None:
    overheads = Overheads()
    overheads.note(1, 0, 500 * MIB, None)
    assert overheads.baselines == {1: 500 * MIB}
    overheads.note(1, 0, 600 * MIB, 0)
    assert overheads.baselines == {1: 520 * MIB}, "a fifth of the way"
    overheads.note(1, 0, 420 * MIB, 0)
    assert overheads.baselines == {1: 500 * MIB}
    overheads.note(1, SMALL_BYTES, 900 * MIB, 0)
    overheads.note(1, 0, 900 * MIB, LIGHT_PERCENT)
    assert overheads.baselines == {1: 500 * MIB}, "it is busy, or has memory of its own"
    overheads.presume(1, 700 * MIB)
    overheads.presume(2, 700 * MIB)
    assert overheads.baselines == {1: 500 * MIB, 2: 700 * MIB}, "a measured one takes precedence"
    overheads.forget(1)
    assert overheads.baselines == {2: 700 * MIB}
