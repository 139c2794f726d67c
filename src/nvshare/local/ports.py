"""A port for the metrics of a local node: on this machine alone, the usual one or the next that is free."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final
from urllib.request import urlopen

LOOPBACK: Final = "127.0.0.1"
FIRST_PORT: Final = 9402
PORTS_MAX: Final = 50
_ANSWER_SEC: Final = 5


def free_port(first: int = FIRST_PORT) -> int | None:
    """None if so many in a row are taken."""
    for port in range(first, min(first + PORTS_MAX, 65_536)):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((LOOPBACK, port))
                return port
            except OSError:
                continue
    return None


def metrics_settings(said: Mapping[str, str]) -> dict[str, str]:
    """Metrics on this machine alone, unless somebody has said what he wants."""
    if said.get("NVSHARE_METRICS_ENABLE") or said.get("NVSHARE_METRICS_ADDR"):
        return {}
    port = free_port()
    if port is None:
        return {}
    return {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": f"{LOOPBACK}:{port}"}


def tell_of_metrics(settings: Mapping[str, str]) -> str:
    """Where metrics are, if the daemon really answers there; empty if it does not."""
    address = settings.get("NVSHARE_METRICS_ADDR", "")
    if not address:
        return ""
    url = f"http://{address}/metrics"
    try:
        with urlopen(url, timeout=_ANSWER_SEC) as answer:
            answer.read(1)
    except OSError:
        return ""
    moved = "" if address.endswith(f":{FIRST_PORT}") else f" (port {FIRST_PORT} is taken)"
    return f"metrics: {url}{moved}"
