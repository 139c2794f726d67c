"""The whole of /metrics of the three ports that HAMi's and k8s-vgpu-monitor's users know, line by line."""

from __future__ import annotations

import pytest

from nvshare.metrics.cluster import CLUSTER
from nvshare.metrics.monitor import MONITOR
from nvshare.metrics.vgpu import VGPU
from tests.exporters.node import Scrape
from tests.exporters.scripted_hami import GOLDEN, TEXTS

CATALOGS = {"monitor": MONITOR, "cluster": CLUSTER, "vgpu": VGPU}


@pytest.mark.parametrize("port", TEXTS)
def test_a_port_shows_what_it_did_before(port: str) -> None:
    """A change that is meant: python -m tests.exporters.scripted_hami, and read the difference."""
    assert TEXTS[port]().splitlines() == (GOLDEN / f"{port}.prom").read_text().splitlines()


@pytest.mark.parametrize("port", TEXTS)
def test_the_golden_file_has_every_metric_of_the_port(port: str) -> None:
    text = (GOLDEN / f"{port}.prom").read_text().replace(" -\n", " 0\n")
    shown = set(Scrape(text).families())
    made_when_started = {"nvshare_monitor_pod_labels"}
    missing = CATALOGS[port].names() - shown
    assert missing == set()
    assert shown - CATALOGS[port].names() <= made_when_started
