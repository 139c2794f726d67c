"""The page at the root of the metrics port, for people."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

from tests.exporters.node import free_port
from tests.node.harness import PATIENCE_SEC, T, running

ROW = re.compile(r"<tr>(.*?)</tr>")
CELL = re.compile(r"<td[^>]*>(.*?)</td>")


def test_each_pod_has_a_row_with_its_state(place: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    settings = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": address}
    with running(place, environment=settings) as daemon:
        for pod in ("holds", "waits"):
            daemon.set_quota(pod, core_percent=50)
        daemon.client("holds").lock()
        waits = daemon.client("waits")
        waits.send(T.REQ_LOCK)
        waits.round_trip()
        daemon.client("idles")
        with urllib.request.urlopen(f"http://{address}/", timeout=PATIENCE_SEC) as answer:
            page = answer.read().decode()
        rows = {cells[0]: cells[1:] for row in ROW.findall(page) if (cells := CELL.findall(row))}
        assert rows["default/holds"][1] == "running"
        assert rows["default/waits"][1] in ("waiting", "throttled")
        assert rows["default/idles"][1] == "idle"
