"""From what a reflector reports to what is known: objects put, objects dropped, and what a list leaves out.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from nvshare.pods.kubernetes.objects import ObjectT
from nvshare.pods.kubernetes.reflection import DELETED, Changed, Listed

KeyT = TypeVar("KeyT")


class Listing(Generic[ObjectT, KeyT]):
    """``known`` are the keys of all objects that are kept now."""

    def __init__(
        self,
        key_of: Callable[[ObjectT], KeyT],
        put: Callable[[ObjectT], None],
        drop: Callable[[KeyT], None],
        known: Callable[[], Iterable[KeyT]],
    ) -> None:
        self._key_of = key_of
        self._put = put
        self._drop = drop
        self._known = known
        self._named: set[KeyT] | None = None
        self.complete = False
        """Whether a whole list has come."""

    def take(self, news: Listed[ObjectT] | Changed[ObjectT]) -> Iterator[None]:
        """In steps of one object."""
        if isinstance(news, Changed):
            if news.kind == DELETED:
                self._drop(self._key_of(news.object))
            else:
                self._put(news.object)
            yield
            return
        if news.first or self._named is None:
            self._named = set()
        for one in news.objects:
            self._named.add(self._key_of(one))
            self._put(one)
            yield
        if news.last:
            for key in [key for key in self._known() if key not in self._named]:
                self._drop(key)
                yield
            self._named = None
            self.complete = True
