"""What the processes of a pod can truthfully say that they have allocated.

Rules:
1. A pod with a limit has no more than the limit: whoever is not answered in time decides by itself, but by
   the limit that it was told.
2. Lowering a limit evicts nothing, and word of it may be under way. So the higher one counts until every
   process that lived under it has given up deciding alone, or is gone. From then on the pod can have no more
   than its charges, which only fall until they are within the limit. The same holds for a limit that is set
   where there was none, and for what a former daemon knew that the pod had: that is never more than the pod
   could have by that one's books.
3. Without a limit a process has what the card has, or several times as much: with
   ``NVSHARE_ENABLE_SINGLE_OVERSUB`` memory is paged. More than OVERSUBSCRIBED times is nonsense.
4. What is said beyond that is cut off and counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

OVERSUBSCRIBED: Final = 16
ANY_CARD_BYTES: Final = 1 << 45
"""Where nobody knows the card."""


class Claims:
    __slots__ = ("_card_bytes", "_limit_bytes", "_older", "_older_bytes", "cut", "most_bytes")

    def __init__(self, limit_bytes: int, card_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._card_bytes = card_bytes
        self._older: set[int] = set()  # processes that may have taken more than the limit, before it was one
        self._older_bytes = 0  # what all may have together by that
        self.cut = 0  # claims that could not be true
        self.most_bytes = 0  # of the whole pod, or of each process where it has no limit
        self._fit()

    def _fit(self) -> None:
        if self._limit_bytes:
            self.most_bytes = max(self._limit_bytes, self._older_bytes)
        else:
            self.most_bytes = OVERSUBSCRIBED * self._card_bytes

    def believe(self, used_bytes: int) -> int:
        """What a process says that it has; what of it can be true."""
        if 0 <= used_bytes <= self.most_bytes:
            return used_bytes
        self.cut += 1
        return self.most_bytes if used_bytes > 0 else 0

    def note_cut(self) -> None:
        """What all say together cannot be true."""
        self.cut += 1

    def take_cut(self) -> int:
        """How many claims were cut since this was last asked."""
        cut, self.cut = self.cut, 0
        return cut

    def of_all(self, used_bytes: int) -> int:
        """What all of them say together; what of it can be true."""
        return self.most_bytes if used_bytes > self.most_bytes and self._limit_bytes else used_bytes

    def set_card(self, card_bytes: int) -> None:
        self._card_bytes = card_bytes
        self._fit()

    def set_limit(self, limit_bytes: int, present: Iterable[int]) -> None:
        """Those who are present may have what they could have until now (rule 2)."""
        before_bytes = self.most_bytes
        self._limit_bytes = limit_bytes
        if limit_bytes and before_bytes > limit_bytes:
            self._older.update(present)
            self._older_bytes = before_bytes if self._older else 0
        self._fit()

    def expect(self, former: int, known_bytes: int) -> None:
        """A former daemon knew that this process may have so much."""
        if known_bytes > 0:
            self._older.add(former)
            self._older_bytes += known_bytes
            self._fit()

    def replace(self, former: int, client: int) -> None:
        """The same process under another id."""
        if former in self._older:
            self._older.remove(former)
            self._older.add(client)

    def decides_alone(self, client: int) -> bool:
        """Whether it may have more than the limit without anybody knowing yet."""
        return client in self._older

    def settle(self, client: int) -> None:
        """It has no more than it says now, or it is gone."""
        self._older.discard(client)

    def see_charges(self, charged_bytes: int) -> None:
        """Once all that lived under a higher limit have settled, what is charged is all there can be."""
        if self._older_bytes and not self._older and charged_bytes < self._older_bytes:
            self._older_bytes = charged_bytes if charged_bytes > self._limit_bytes else 0
            self._fit()
