"""A port for metrics: the next free one, and told of only when somebody answers there."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from nvshare.local.ports import LOOPBACK, free_port, metrics_settings, tell_of_metrics


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        first = taken.getsockname()[1]
        found = free_port(first)
        assert found is not None
        assert first < found < first + 50


def test_whoever_said_what_he_wants_gets_that() -> None:
    assert metrics_settings({"NVSHARE_METRICS_ENABLE": "0"}) == {}
    assert metrics_settings({"NVSHARE_METRICS_ADDR": "0.0.0.0:9402"}) == {}
    chosen = metrics_settings({})
    assert chosen["NVSHARE_METRICS_ENABLE"] == "1"
    assert chosen["NVSHARE_METRICS_ADDR"].startswith(f"{LOOPBACK}:")


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"# nothing\n")

    def log_message(self, *_arguments: object) -> None:
        pass


def test_metrics_are_told_of_only_where_somebody_answers() -> None:
    with HTTPServer((LOOPBACK, 0), _Answer) as server:
        address = f"{LOOPBACK}:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = tell_of_metrics({"NVSHARE_METRICS_ADDR": address})
        assert told == f"metrics: http://{address}/metrics (port 9402 is taken)"
        server.shutdown()
    assert tell_of_metrics({"NVSHARE_METRICS_ADDR": address}) == ""
    assert tell_of_metrics({}) == ""
