"""Grafana dashboards: each begins with the question its reader comes with, and has what answers it.

``model`` says what a dashboard is made of, ``promql`` what is asked by several, and ``grafana`` writes it as
Grafana imports it. A dashboard picks the metrics it needs; docs/metrics.md has all of them.
"""

from __future__ import annotations

from typing import Final

from nvshare.metrics.dashboards.daemon import DAEMON
from nvshare.metrics.dashboards.fleet import FLEET
from nvshare.metrics.dashboards.grafana import dashboard_json
from nvshare.metrics.dashboards.model import Dashboard
from nvshare.metrics.dashboards.node import NODE
from nvshare.metrics.dashboards.pod import POD

DASHBOARDS: Final[dict[str, Dashboard]] = {one.name: one for one in (NODE, POD, DAEMON, FLEET)}

__all__ = ["DASHBOARDS", "dashboard_json"]
