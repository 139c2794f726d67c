"""Time slots as bits of a number: which clients had work at the same time."""

from __future__ import annotations


def parts(slots: list[int]) -> list[float]:
    """By client: the mean of 1 / n over its slots, n being how many clients had work in a slot."""
    counts = _counts(slots)
    found = []
    for own in slots:
        had, total = 0.0, own.bit_count()
        for number, where in counts.items():
            had += (own & where).bit_count() / number
        found.append(had / total if total else 1.0)
    return found


def _counts(slots: list[int]) -> dict[int, int]:
    """By number of clients: the slots in which that many had work."""
    at_least = [0]  # by number: the slots in which that many or more had work; index 0 is not used
    for own in slots:
        at_least.append(0)
        for number in range(len(at_least) - 1, 1, -1):
            at_least[number] |= at_least[number - 1] & own
        at_least[1] |= own
    at_least.append(0)
    return {
        number: at_least[number] & ~at_least[number + 1]
        for number in range(1, len(at_least) - 1)
        if at_least[number] & ~at_least[number + 1]
    }
