"""Which format and compression a scraper gets, beside what prometheus-client would choose."""

from __future__ import annotations

import pytest
from prometheus_client.exposition import choose_encoder

from nvshare.runtime.negotiate import wants_gzip, wants_openmetrics

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("text/html,application/xml;q=0.9,*/*;q=0.8", False),
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0", True),
    ],
)
def test_format(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics
    assert ("openmetrics" in choose_encoder(accept)[1]) is openmetrics


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("application/openmetrics-text;q=0.1,text/plain;q=0.5", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;version=9.9.9", False),
        ("application/openmetrics-text;q=nonsense", False),
    ],
)
def test_weights_and_versions_count(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics


@pytest.mark.parametrize(
    ("header", "gzip"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("*", True),
        ("br", False),
    ],
)
def test_compression(header: str, gzip: bool) -> None:
    assert wants_gzip(header) is gzip
