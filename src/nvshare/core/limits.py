"""Whose word counts on a pod's limits.

1. Memory: what the operator set by ctl, else what the pod's user set by ctl, else the lowest of run,
   annotation and env, else the default. Compute: the first of the sources that says anything.
2. A ceiling is no word on a limit but a bound on all of them: what is higher, or not limited, is lowered to
   it. A quota under a ceiling is a cap: a share would borrow beyond it.
3. A limit that is withdrawn is as if never set.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SOURCES: Final = ("ctl", "user", "run", "annotation", "env", "default")
"""In order of precedence."""
CEILING: Final = "ceiling"
DEFAULT: Final = "default"
_WORDS_OF: Final = (*SOURCES, CEILING)
OF_PEOPLE: Final = ("ctl", "user")
"""Who set a limit by hand: that beats what is lower, too."""
OF_OWNER: Final = (DEFAULT, CEILING)
"""What root's settings say on the pod's user."""
SOURCE_WORDS: Final = {
    "ctl": "set by nvshare ctl quota set",
    "user": "set by its user with nvshare ctl quota set",
    "run": "from nvshare run",
    "annotation": "from the pod's annotation",
    "env": "from NVSHARE_GPU_MEMORY_LIMIT",
    DEFAULT: "root's default for its user",
    CEILING: "root's ceiling for its user",
}
"""For people."""
NO_SOURCE: Final = "none"
"""Of a limit that nobody has set."""

MEMORY_MAX_BYTES: Final = (1 << 63) - 1
"""Of a limit: what messages, files and C programs can all hold."""


class PodLimits(NamedTuple):
    """What holds for a pod on each GPU it uses. 0 bytes: no limit. 100 percent: unlimited."""

    memory_bytes: int = 0
    core_percent: int = 100
    share: bool = False
    memory_source: str = NO_SOURCE
    core_source: str = NO_SOURCE


class _Word(NamedTuple):
    memory_bytes: int | None
    core_percent: int | None
    share: bool | None


class LimitsBook:
    """All sources' words on one pod."""

    __slots__ = ("_words",)

    def __init__(self, former: LimitsBook | None = None) -> None:
        """As ``former`` is now."""
        self._words: dict[str, _Word] = dict(former._words) if former is not None else {}

    def put(
        self, source: str, memory_bytes: int | None, core_percent: int | None, share: bool | None
    ) -> None:
        if source not in _WORDS_OF:
            raise ValueError(f"unknown source of limits {source!r}; accepted: {', '.join(_WORDS_OF)}")
        if memory_bytes is not None and not 0 <= memory_bytes <= MEMORY_MAX_BYTES:
            raise ValueError(f"memory limit {memory_bytes} is not within 0..{MEMORY_MAX_BYTES} bytes")
        if core_percent is not None and not 1 <= core_percent <= 100:
            raise ValueError(f"compute limit {core_percent} is not within 1..100")
        word = _Word(memory_bytes, core_percent, share)
        if word == _Word(None, None, None):
            self._words.pop(source, None)
        else:
            self._words[source] = word

    def effective(self) -> PodLimits:
        asked, ceiling = self.asked(), self._words.get(CEILING)
        if ceiling is None:
            return asked
        memory_bytes, percent = ceiling.memory_bytes, ceiling.core_percent
        if memory_bytes and not 0 < asked.memory_bytes <= memory_bytes:
            asked = asked._replace(memory_bytes=memory_bytes, memory_source=CEILING)
        if percent is not None:
            asked = asked._replace(share=False)
            if asked.core_percent > percent:
                asked = asked._replace(core_percent=percent, core_source=CEILING)
        return asked

    def asked(self) -> PodLimits:
        """As they would be without a ceiling."""
        memory_bytes, memory_source = self._memory()
        percent, core_source, share = 100, NO_SOURCE, False
        for source in SOURCES:
            word = self._words.get(source)
            if word is not None and word.core_percent is not None:
                percent, core_source = word.core_percent, source
                break
        for source in SOURCES:
            word = self._words.get(source)
            if word is not None and word.share is not None:
                share = word.share
                break
        return PodLimits(memory_bytes, percent, share, memory_source, core_source)

    def _memory(self) -> tuple[int, str]:
        said = {
            source: word.memory_bytes
            for source in SOURCES
            if (word := self._words.get(source)) is not None and word.memory_bytes is not None
        }
        for source in OF_PEOPLE:
            if source in said:
                return said[source], source if said[source] else NO_SOURCE
        if len(said) > 1:
            said.pop(DEFAULT, None)  # somebody has said something else
        lowest = min(
            ((amount, source) for source, amount in said.items() if amount), default=None, key=_amount
        )
        return lowest if lowest is not None else (0, NO_SOURCE)

    def words(self) -> dict[str, tuple[int | None, int | None, bool | None]]:
        """For the checkpoint."""
        return {source: (*word,) for source, word in self._words.items()}


def _amount(said: tuple[int, str]) -> int:
    """Of two that are equal the first source counts."""
    return said[0]


class Limits:
    """What was said on the limits of all pods."""

    __slots__ = ("_books", "memory_sources")

    def __init__(self) -> None:
        self._books: dict[str, LimitsBook] = {}
        self.memory_sources: dict[str, str] = {}  # who set a pod's memory limit, of those that have one

    def books(self) -> dict[str, LimitsBook]:
        """By pod, where some source has said anything; none of them ever changes."""
        return dict(self._books)

    def said(self, pod: str) -> dict[str, tuple[int | None, int | None, bool | None]]:
        """What each source has said on a pod's limits: memory, percent, share."""
        book = self._books.get(pod)
        return book.words() if book is not None else {}

    def said_by(self, pod: str, source: str) -> tuple[int | None, int | None, bool | None]:
        return self.said(pod).get(source, (None, None, None))

    def of(self, pod: str) -> PodLimits:
        book = self._books.get(pod)
        return book.effective() if book is not None else PodLimits()

    def asked(self, pod: str) -> PodLimits:
        """As they would be without a ceiling."""
        book = self._books.get(pod)
        return book.asked() if book is not None else PodLimits()

    def after(
        self, pod: str, source: str, memory_bytes: int | None, core_percent: int | None, share: bool | None
    ) -> PodLimits:
        """A pod's limits if that were said; nothing changes."""
        book = LimitsBook(self._books.get(pod))
        book.put(source, memory_bytes, core_percent, share)
        return book.effective()

    def put(
        self, pod: str, source: str, memory_bytes: int | None, core_percent: int | None, share: bool | None
    ) -> PodLimits:
        """A source says that; the pod's limits from now on."""
        book = LimitsBook(self._books.get(pod))  # a new one: who has a copy of ``books`` may read it later
        book.put(source, memory_bytes, core_percent, share)
        limits = book.effective()
        if limits.memory_source == NO_SOURCE:
            self.memory_sources.pop(pod, None)
        else:
            self.memory_sources[pod] = limits.memory_source
        if book.words():
            self._books[pod] = book
        else:
            self._books.pop(pod, None)
        return limits
