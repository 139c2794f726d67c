"""Which source of a pod's limits takes precedence.

1. Memory: what the operator set by ctl, else what the pod's user set by ctl, else the lowest of run,
   annotation and env. The default counts if neither run nor annotation states a limit; a program's own
   environment can only lower it. Compute: the first source that states a quota.
2. A ceiling does not set a limit but bounds all of them: a limit above it, or no limit, is lowered to the
   ceiling. A quota under a ceiling is a cap, because a share would borrow beyond it.
3. A limit that is withdrawn counts as never set.
"""

from __future__ import annotations

from typing import Final, NamedTuple

SOURCES: Final = ("ctl", "user", "run", "annotation", "env", "default")
"""In order of precedence."""
CEILING: Final = "ceiling"
DEFAULT: Final = "default"
ENVIRONMENT: Final = "env"
_ACCEPTED: Final = (*SOURCES, CEILING)
SET_BY_HAND: Final = ("ctl", "user")
"""A memory limit from these wins even over a lower one."""
OWNER_SOURCES: Final = (DEFAULT, CEILING)
"""Limits from root's settings for the pod's user, or from the cluster."""
SOURCE_DESCRIPTIONS: Final = {
    "ctl": "set by nvshare ctl quota set",
    "user": "set by its user with nvshare ctl quota set",
    "run": "from nvshare run",
    "annotation": "from the pod's annotation",
    "env": "from NVSHARE_GPU_MEMORY_LIMIT",
    DEFAULT: "the default of its user, namespace or cluster",
    CEILING: "the ceiling of its user or namespace",
}
"""As shown to people who cannot know more about the pod, as in a program of it."""
NO_SOURCE: Final = "none"
"""The source of a limit that nobody has set."""

MEMORY_MAX_BYTES: Final = (1 << 63) - 1
"""The largest limit that messages, files and C programs can all represent."""


class PodLimits(NamedTuple):
    """The limits in force for a pod on each GPU it uses. 0 bytes: no limit. 100 percent: unlimited."""

    memory_bytes: int = 0
    core_percent: int = 100
    share: bool = False
    memory_source: str = NO_SOURCE
    core_source: str = NO_SOURCE


class SourceLimits(NamedTuple):
    """What one source states; None leaves a limit to the other sources."""

    memory_bytes: int | None = None
    core_percent: int | None = None
    share: bool | None = None


class PodLimitSources:
    """What each source states for one pod."""

    __slots__ = ("_by_source",)

    def __init__(self, original: PodLimitSources | None = None) -> None:
        """A copy of the original, if there is one."""
        self._by_source: dict[str, SourceLimits] = dict(original._by_source) if original is not None else {}

    def put(
        self, source: str, memory_bytes: int | None, core_percent: int | None, share: bool | None
    ) -> None:
        if source not in _ACCEPTED:
            raise ValueError(f"unknown source of limits {source!r}; accepted: {', '.join(_ACCEPTED)}")
        if memory_bytes is not None and not 0 <= memory_bytes <= MEMORY_MAX_BYTES:
            raise ValueError(f"memory limit {memory_bytes} is not within 0..{MEMORY_MAX_BYTES} bytes")
        if core_percent is not None and not 1 <= core_percent <= 100:
            raise ValueError(f"compute limit {core_percent} is not within 1..100")
        stated = SourceLimits(memory_bytes, core_percent, share)
        if stated == SourceLimits():
            self._by_source.pop(source, None)
        else:
            self._by_source[source] = stated

    def effective(self) -> PodLimits:
        limits, ceiling = self.without_ceiling(), self._by_source.get(CEILING)
        if ceiling is None:
            return limits
        memory_bytes, percent = ceiling.memory_bytes, ceiling.core_percent
        if memory_bytes and not 0 < limits.memory_bytes <= memory_bytes:
            limits = limits._replace(memory_bytes=memory_bytes, memory_source=CEILING)
        if percent is not None:
            limits = limits._replace(share=False)
            if limits.core_percent > percent:
                limits = limits._replace(core_percent=percent, core_source=CEILING)
        return limits

    def without_ceiling(self) -> PodLimits:
        memory_bytes, memory_source = self._memory()
        percent, core_source, share = 100, NO_SOURCE, False
        for source in SOURCES:
            stated = self._by_source.get(source)
            if stated is not None and stated.core_percent is not None:
                percent, core_source = stated.core_percent, source
                break
        for source in SOURCES:
            stated = self._by_source.get(source)
            if stated is not None and stated.share is not None:
                share = stated.share
                break
        return PodLimits(memory_bytes, percent, share, memory_source, core_source)

    def _memory(self) -> tuple[int, str]:
        stated = {
            source: limits.memory_bytes
            for source in SOURCES
            if (limits := self._by_source.get(source)) is not None and limits.memory_bytes is not None
        }
        for source in SET_BY_HAND:
            if source in stated:
                return stated[source], source if stated[source] else NO_SOURCE
        if not stated.keys() <= {ENVIRONMENT, DEFAULT}:
            stated.pop(DEFAULT, None)  # whoever may choose the pod's limit has chosen one
        lowest = min(
            ((amount, source) for source, amount in stated.items() if amount), default=None, key=_amount
        )
        return lowest if lowest is not None else (0, NO_SOURCE)

    def by_source(self) -> dict[str, tuple[int | None, int | None, bool | None]]:
        """For the checkpoint."""
        return {source: (*stated,) for source, stated in self._by_source.items()}


def _amount(stated: tuple[int, str]) -> int:
    """Between equal amounts the first source wins."""
    return stated[0]


class LimitSources:
    """What all sources state for all pods."""

    __slots__ = ("_by_pod", "memory_sources")

    def __init__(self) -> None:
        self._by_pod: dict[str, PodLimitSources] = {}
        self.memory_sources: dict[str, str] = {}  # of the pods with a memory limit: which source set it

    def by_pod(self) -> dict[str, PodLimitSources]:
        """Pods for which any source states a limit. The values never change."""
        return dict(self._by_pod)

    def by_source(self, pod: str) -> dict[str, tuple[int | None, int | None, bool | None]]:
        """What each source states for a pod: memory, percent, share."""
        sources = self._by_pod.get(pod)
        return sources.by_source() if sources is not None else {}

    def from_source(self, pod: str, source: str) -> tuple[int | None, int | None, bool | None]:
        return self.by_source(pod).get(source, (None, None, None))

    def of(self, pod: str) -> PodLimits:
        """The limits in force."""
        sources = self._by_pod.get(pod)
        return sources.effective() if sources is not None else PodLimits()

    def without_ceiling(self, pod: str) -> PodLimits:
        sources = self._by_pod.get(pod)
        return sources.without_ceiling() if sources is not None else PodLimits()

    def after(
        self, pod: str, source: str, memory_bytes: int | None, core_percent: int | None, share: bool | None
    ) -> PodLimits:
        """What a pod's limits would become if the source stated that; nothing changes."""
        sources = PodLimitSources(self._by_pod.get(pod))
        sources.put(source, memory_bytes, core_percent, share)
        return sources.effective()

    def put(
        self, pod: str, source: str, memory_bytes: int | None, core_percent: int | None, share: bool | None
    ) -> PodLimits:
        """The source states that from now on; returns the pod's limits in force."""
        sources = PodLimitSources(self._by_pod.get(pod))  # a copy: callers of ``by_pod`` may read the old one
        sources.put(source, memory_bytes, core_percent, share)
        limits = sources.effective()
        if limits.memory_source == NO_SOURCE:
            self.memory_sources.pop(pod, None)
        else:
            self.memory_sources[pod] = limits.memory_source
        if sources.by_source():
            self._by_pod[pod] = sources
        else:
            self._by_pod.pop(pod, None)
        return limits
