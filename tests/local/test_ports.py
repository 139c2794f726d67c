"""A port for metrics: the next free one, and told of only when somebody answers there."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from nvshare.local import ports
from nvshare.local.ports import (
    LOOPBACK,
    free_port,
    metrics_settings,
    tell_of_metrics,
    was_taken_meanwhile,
)


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        first = taken.getsockname()[1]
        found = free_port(first)
        assert found is not None
        assert first < found < first + 50


def test_on_and_on_this_machine_alone_unless_somebody_said_otherwise_of_either() -> None:
    chosen = metrics_settings({})
    assert chosen["NVSHARE_METRICS_ENABLE"] == "1"
    assert chosen["NVSHARE_METRICS_ADDR"].startswith(f"{LOOPBACK}:")
    assert metrics_settings({"NVSHARE_METRICS_ENABLE": "0"}) == {}
    assert metrics_settings({"NVSHARE_METRICS_ADDR": "0.0.0.0:9402"}) == {"NVSHARE_METRICS_ENABLE": "1"}
    assert metrics_settings({"NVSHARE_METRICS_ENABLE": "0", "NVSHARE_METRICS_ADDR": "9402"}) == {}
    asked = metrics_settings({"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": ""})
    assert asked.keys() == {"NVSHARE_METRICS_ADDR"}, "only switched on: not to the whole network"
    assert asked["NVSHARE_METRICS_ADDR"].startswith(f"{LOOPBACK}:")


def test_no_port_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "PORTS_MAX", 1)
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        first = taken.getsockname()[1]
        assert metrics_settings({}, first) == {}, "nobody has asked for metrics"
        asked = metrics_settings({"NVSHARE_METRICS_ENABLE": "1"}, first)
        assert asked == {"NVSHARE_METRICS_ADDR": f"{LOOPBACK}:{first}"}, "the daemon says that it is taken"


def test_a_complaint_about_the_port_names_it() -> None:
    chosen = {"NVSHARE_METRICS_ADDR": "127.0.0.1:9402"}
    words = "ERROR NVSHARE_METRICS_ADDR=127.0.0.1:9402: [Errno 98] Address already in use"
    assert was_taken_meanwhile(chosen, words) == 9402
    assert was_taken_meanwhile(chosen, "NVSHARE_METRICS_ADDR=127.0.0.1:94020: in use") is None
    assert was_taken_meanwhile({}, words) is None


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"# nothing\n")

    def log_message(self, *_arguments: object) -> None:
        pass


def test_metrics_are_reported_only_where_somebody_answers() -> None:
    with HTTPServer((LOOPBACK, 0), _Answer) as server:
        address = f"{LOOPBACK}:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        told = tell_of_metrics({"NVSHARE_METRICS_ADDR": address})
        assert told == f"metrics: http://{address}/metrics (port 9402 is taken)"
        server.shutdown()
    assert tell_of_metrics({"NVSHARE_METRICS_ADDR": address}) == ""
    assert tell_of_metrics({}) == ""
