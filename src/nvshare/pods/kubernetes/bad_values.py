"""Values of annotations that are not accepted: which are there now, and which have been told. Pure.

1. A bad value is told once for each pod or namespace and annotation. The last few are remembered.
2. The next daemon gets them from the checkpoint, so that it does not tell them again; not all if there are
   very many.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from nvshare.pods.kubernetes.limit_annotations import OF_CEILINGS, OF_LIMITS, BadValue

BAD_VALUES_KEPT: Final = 8
ROWS_MAX: Final = 1024
"""In the checkpoint."""
ANNOTATIONS: Final = tuple(kind.annotation for kind in (*OF_LIMITS, *OF_CEILINGS))
Row = tuple[str, str, tuple[str, ...]]
"""UID of the pod or key of the namespace, annotation, values that were told, the last one last."""
Told = Mapping[tuple[str, str], tuple[str, ...]]


def key_of_namespace(name: str) -> str:
    """Among the UIDs of pods."""
    return f"namespace {name}"


class BadValues:
    def __init__(self) -> None:
        self._present: dict[str, list[BadValue]] = {}
        self._told: dict[tuple[str, str], tuple[str, ...]] = {}  # the one that was told last is the last

    def take(self, key: str, bad: list[BadValue]) -> list[BadValue]:
        """These are the bad values of a pod or namespace now; returns those that are to be told."""
        if bad:
            self._present[key] = bad
        else:
            self._present.pop(key, None)
        return [one for one in bad if self._is_new(key, one)]

    def _is_new(self, key: str, bad: BadValue) -> bool:
        place = (key, bad.annotation)
        told = self._told.get(place, ())
        if bad.value in told:
            return False
        self._told.pop(place, None)
        self._told[place] = (*told, bad.value)[-BAD_VALUES_KEPT:]
        return True

    def present(self, key: str) -> list[BadValue]:
        return self._present.get(key, [])

    def forget(self, key: str) -> None:
        """The pod or namespace is gone."""
        self._present.pop(key, None)
        for annotation in ANNOTATIONS:
            self._told.pop((key, annotation), None)

    def told(self) -> Told:
        """A copy; its values never change."""
        return dict(self._told)

    def restore(self, rows: Iterable[Row]) -> None:
        """What the previous daemon told."""
        self._told |= {
            (key, annotation): values[-BAD_VALUES_KEPT:] for key, annotation, values in islice(rows, ROWS_MAX)
        }


def rows_of(told: Told) -> list[Row]:
    """Rule 2: those that were told last."""
    latest = islice(told.items(), max(0, len(told) - ROWS_MAX), None)
    return [(key, annotation, values) for (key, annotation), values in latest]
