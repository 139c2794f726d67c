"""The whole of /metrics of a scripted node, line by line: nothing changes unnoticed."""

from __future__ import annotations

from nvshare.metrics.scheduler import SCHEDULER
from tests.exporters.node import Scrape
from tests.exporters.scripted import GOLDEN, metrics_text


def test_a_scripted_node_shows_what_it_did_before() -> None:
    """A change that is meant: python -m tests.exporters.scripted, and read the difference."""
    assert metrics_text().splitlines() == GOLDEN.read_text().splitlines()


def test_the_scripted_node_has_nearly_every_metric() -> None:
    """What is missing needs hardware figures that the script leaves out, or a paging GPU."""
    shown = set(Scrape(GOLDEN.read_text().replace(" -\n", " 0\n")).families())
    missing = SCHEDULER.names() - shown
    assert len(missing) <= 8, sorted(missing)
