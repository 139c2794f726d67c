"""Debian's prometheus and alertmanager, in a directory of a test's own and on loopback."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.exporters.node import free_port
from tests.node.harness import PATIENCE_SEC

ROOT = Path(__file__).resolve().parents[2]
INTERVAL = "2s"


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=PATIENCE_SEC) as answer:
        return json.loads(answer.read())


def wait_for(found: Callable[[], Any]) -> Any:
    """What is found, as soon as anything is."""
    deadline = time.monotonic() + 2 * PATIENCE_SEC
    while True:
        try:
            result = found()
        except urllib.error.URLError:
            result = None
        if result:
            return result
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


class Prometheus:
    def __init__(self, port: int, alertmanager_port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.alertmanager_url = f"http://127.0.0.1:{alertmanager_port}"

    def query(self, expr: str) -> list[dict[str, Any]]:
        answer = fetch(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expr})}")
        assert answer["status"] == "success", answer
        result: list[dict[str, Any]] = answer["data"]["result"]
        return result

    def numbers(self, expr: str) -> list[float]:
        return [float(row["value"][1]) for row in self.query(expr)]

    def targets(self) -> list[dict[str, Any]]:
        active: list[dict[str, Any]] = fetch(f"{self.url}/api/v1/targets")["data"]["activeTargets"]
        return active

    def alerts(self) -> list[dict[str, Any]]:
        """Those the alertmanager has and that have not ended."""
        active: list[dict[str, Any]] = fetch(f"{self.alertmanager_url}/api/v2/alerts?active=true")
        return active


def _alert_rules(directory: Path) -> Path:
    """Ours, but with no patience: the tests of the rules themselves are promtool's."""
    content = yaml.safe_load((ROOT / "deploy/prometheus/alert-rules.yml").read_text())
    for group in content["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = INTERVAL
    path = directory / "alert-rules.yml"
    path.write_text(yaml.safe_dump(content))
    return path


def _configuration(directory: Path, target_port: int, alertmanager_port: int) -> Path:
    """The scrape configuration we ship, with this node as its target and labels that clash with ours."""
    content = yaml.safe_load((ROOT / "deploy/prometheus/scrape.yml").read_text())
    [job] = content["scrape_configs"]
    job["scrape_interval"] = INTERVAL
    job["static_configs"] = [
        {
            "targets": [f"127.0.0.1:{target_port}"],
            "labels": {"namespace": "nvshare-system", "pod": "nvshare-scheduler-abcde"},
        }
    ]
    content["global"] = {"scrape_interval": INTERVAL, "evaluation_interval": "1s"}
    content["rule_files"] = [
        str(_alert_rules(directory)),
        str(ROOT / "deploy/prometheus/recording-rules.yml"),
    ]
    targets = [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]
    content["alerting"] = {"alertmanagers": [{"static_configs": targets}]}
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(content))
    return path


@contextmanager
def _running(command: list[str], ready_url: str, log: Path) -> Iterator[None]:
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent) as process:
        try:
            wait_for(lambda: urllib.request.urlopen(ready_url, timeout=PATIENCE_SEC).status == 200)
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_SEC)


@contextmanager
def prometheus(directory: Path, target_port: int) -> Iterator[Prometheus]:
    port, alertmanager_port, directory = free_port(), free_port(), directory / "prometheus"
    directory.mkdir()
    routes = {"route": {"receiver": "nobody", "group_wait": "0s"}, "receivers": [{"name": "nobody"}]}
    (directory / "alertmanager.yml").write_text(yaml.safe_dump(routes))
    alertmanager = [
        "prometheus-alertmanager",
        f"--config.file={directory}/alertmanager.yml",
        f"--storage.path={directory}/alerts",
        f"--web.listen-address=127.0.0.1:{alertmanager_port}",
        "--cluster.listen-address=",
    ]
    server = [
        "prometheus",
        f"--config.file={_configuration(directory, target_port, alertmanager_port)}",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    found = Prometheus(port, alertmanager_port)
    with (
        _running(alertmanager, f"{found.alertmanager_url}/-/ready", directory / "alertmanager.log"),
        _running(server, f"{found.url}/-/ready", directory / "prometheus.log"),
    ):
        yield found
