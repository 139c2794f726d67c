"""A port for the metrics of a local node: on loopback, the usual one or the next free one."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Final
from urllib.request import urlopen

LOOPBACK: Final = "127.0.0.1"
FIRST_PORT: Final = 9402
PORTS_MAX: Final = 50
OFF: Final = ("0", "false")
_ANSWER_SEC: Final = 30  # a busy machine's daemon needs it; a closed port answers at once


def free_port(first: int = FIRST_PORT) -> int | None:
    """None if this many in a row are taken."""
    for port in range(first, min(first + PORTS_MAX, 65_536)):
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((LOOPBACK, port))
                return port
            except OSError:
                continue
    return None


def metrics_settings(stated: Mapping[str, str], first: int = FIRST_PORT) -> dict[str, str]:
    """Metrics on, and on loopback: each unless the settings say otherwise."""
    wanted, address = stated.get("NVSHARE_METRICS_ENABLE"), stated.get("NVSHARE_METRICS_ADDR")
    enable = {} if wanted else {"NVSHARE_METRICS_ENABLE": "1"}
    if address or wanted in OFF:
        return enable
    port = free_port(first)
    if port is None and not wanted:
        return {}  # they were not requested
    return {**enable, "NVSHARE_METRICS_ADDR": f"{LOOPBACK}:{port or first}"}


def was_taken_meanwhile(settings: Mapping[str, str], complaint: str) -> int | None:
    """The port, if the daemon reports that it was taken between our check and its own."""
    address = settings.get("NVSHARE_METRICS_ADDR", "")
    if not address or f"NVSHARE_METRICS_ADDR={address}:" not in complaint:
        return None
    return int(address.rpartition(":")[2])


def tell_of_metrics(settings: Mapping[str, str]) -> str:
    """The address of the metrics, if the daemon answers there; empty if it does not."""
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
