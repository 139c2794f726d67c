"""How much of the memory that the processes of a pod report can be true.

Rules:
1. A pod with a limit has no more than the limit: a process that is not answered in time decides by itself,
   but within the limit that it was sent.
2. Lowering a limit evicts nothing, and the message may be on its way. So the higher limit counts until every
   process that lived under it has given up deciding alone, or is gone. From then on the pod can have no more
   than its charges, which only fall until they are within the limit. The same holds for a limit that is set
   where there was none, and for the memory that the previous daemon knew of, which is never more than the
   pod could have according to its books.
3. Without a limit a process has as much as the card, or several times as much, since memory is paged with
   ``NVSHARE_ENABLE_SINGLE_OVERSUB``. More than OVERSUBSCRIBED times the card is impossible.
4. Claims beyond that are cut and counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OVERSUBSCRIBED: Final = 16
ANY_CARD_BYTES: Final = 1 << 45
"""Used while the size of the card is unknown."""


class MemoryClaims:
    __slots__ = ("_card_bytes", "_limit_bytes", "_older", "_older_bytes", "cut", "most_bytes")

    def __init__(self, limit_bytes: int, card_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._card_bytes = card_bytes
        self._older: set[int] = set()  # processes that may have more than the limit, from before it was set
        self._older_bytes = 0  # how much they may have together
        self.cut = 0  # claims that cannot be true
        self.most_bytes = 0  # for the whole pod, or for each process if there is no limit
        self._fit()

    def _fit(self) -> None:
        if self._limit_bytes:
            self.most_bytes = max(self._limit_bytes, self._older_bytes)
        else:
            self.most_bytes = OVERSUBSCRIBED * self._card_bytes

    def believe(self, used_bytes: int) -> int:
        """As much of a process's claim as can be true."""
        if 0 <= used_bytes <= self.most_bytes:
            return used_bytes
        self.cut += 1
        return self.most_bytes if used_bytes > 0 else 0

    def note_cut(self) -> None:
        """The claims of all processes together cannot be true."""
        self.cut += 1

    def take_cut(self) -> int:
        """How many claims were cut since the last call."""
        cut, self.cut = self.cut, 0
        return cut

    def of_all(self, used_bytes: int) -> int:
        """As much of the sum of all claims as can be true."""
        return self.most_bytes if used_bytes > self.most_bytes and self._limit_bytes else used_bytes

    def set_card(self, card_bytes: int) -> None:
        self._card_bytes = card_bytes
        self._fit()

    def set_limit(self, limit_bytes: int, present: Iterable[int]) -> None:
        """Processes that are present may keep what they could have until now (rule 2)."""
        before_bytes = self.most_bytes
        self._limit_bytes = limit_bytes
        if limit_bytes and before_bytes > limit_bytes:
            self._older.update(present)
            self._older_bytes = before_bytes if self._older else 0
        self._fit()

    def expect(self, previous: int, known_bytes: int) -> None:
        """The previous daemon knew that this process may have so much."""
        if known_bytes > 0:
            self._older.add(previous)
            self._older_bytes += known_bytes
            self._fit()

    def replace(self, previous: int, client: int) -> None:
        """The same process under another id."""
        if previous in self._older:
            self._older.remove(previous)
            self._older.add(client)

    def decides_alone(self, client: int) -> bool:
        """Whether it may have more than the limit without anybody knowing yet."""
        return client in self._older

    def possible_bytes(self, charges: dict[int, int]) -> dict[int, int]:
        """By process, what it may have, given what it is charged; together no more than the pod can have."""
        alone = {key: 1 for key in charges if self.decides_alone(key)}
        if not self._limit_bytes:
            return charges | dict.fromkeys(alone, self.most_bytes)
        charged_bytes = sum(charges.values())
        if charged_bytes > self.most_bytes:  # the claims cannot be true: cut them in proportion
            return _parts(charges, self.most_bytes)
        beyond = _parts(alone, self.most_bytes - charged_bytes)
        return {key: amount + beyond.get(key, 0) for key, amount in charges.items()}

    def settle(self, client: int) -> None:
        """It has no more than it reports now, or it is gone."""
        self._older.discard(client)

    def see_charges(self, charged_bytes: int) -> None:
        """Once all that lived under a higher limit have settled, the pod has no more than its charges."""
        if self._older_bytes and not self._older and charged_bytes < self._older_bytes:
            self._older_bytes = charged_bytes if charged_bytes > self._limit_bytes else 0
            self._fit()


def _parts(weights: dict[int, int], whole_bytes: int) -> dict[int, int]:
    """Divide the whole by weight; the parts add up to the byte."""
    total = max(1, sum(weights.values()))
    before, parts = 0, {}
    for key, weight in weights.items():
        after = before + weight
        parts[key] = after * whole_bytes // total - before * whole_bytes // total
        before = after
    return parts
