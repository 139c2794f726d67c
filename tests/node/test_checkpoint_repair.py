"""Which figures and names a checkpoint may hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from nvshare.core.books.pod_figures import PodTotals
from nvshare.node.bounds import FIGURE_MAX
from nvshare.node.checkpoint_repair import fit_totals, usable_rows

NOTHING = PodTotals(0, 0, 0, 0, (0, 0), 0, 0, 0)


def with_figure(name: str, figure: int) -> PodTotals:
    changed: dict[str, Any] = {name: figure}
    return NOTHING._replace(**changed)


def complaints(totals: PodTotals) -> list[str]:
    found: list[str] = []
    row = msgspec.Raw(msgspec.json.encode(("default/web", "GPU-0", totals)))
    assert len(usable_rows("departed", [row], found)) == 1 - len(found)
    return found


@pytest.mark.parametrize("name", ["gpu_time_ns", "billed_ns", "wait_sum_ns", "late_drains", "overlap_ns"])
def test_what_is_exported_as_a_counter_is_never_below_zero(name: str) -> None:
    below = with_figure(name, -1)
    assert complaints(below) == [f"departed: {name} -1 is not within 0 to {FIGURE_MAX}"]
    assert fit_totals(below) == NOTHING


@pytest.mark.parametrize("name", ["entitled_ns", "last_worked_ns", "left_ns"])
def test_what_may_be_below_zero_stays_so(name: str) -> None:
    """Times are those of a clock, which may have begun later."""
    below = with_figure(name, -1)
    assert complaints(below) == []
    assert fit_totals(below) == below


@pytest.mark.parametrize(("length", "usable"), [(256, True), (257, False)])
@pytest.mark.parametrize("place", [1, 2, 5], ids=["namespace", "name", "uid in the API"])
def test_names_of_kubernetes_pods_are_bounded(place: int, length: int, usable: bool) -> None:
    row: list[object] = [
        "12345678-1234-1234-1234-123456789012",
        "default",
        "web",
        (None, None, None),
        False,
        "1234-5678",
    ]
    row[place] = "n" * length
    found: list[str] = []
    assert len(usable_rows("kubernetes_pods", [msgspec.Raw(msgspec.json.encode(row))], found)) == usable
    assert found == ([] if usable else ["kubernetes_pods: a name is longer than 256 characters"])
