"""Content negotiation with a scraper: the format by Accept, compression by Accept-Encoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text"
_OPENMETRICS_VERSIONS: Final = frozenset({"", "0.0.1", "1.0.0"})
_PLAIN: Final = frozenset({"text/plain", "text/*", "*/*"})
_PARTS_MAX: Final = 64


def _parts(header: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for part in header.split(",")[:_PARTS_MAX]:
        token, *rest = (piece.strip() for piece in part.split(";"))
        parameters = {}
        for piece in rest:
            name, _, value = piece.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        try:
            weight = float(parameters.get("q", "1"))
        except ValueError:
            weight = 0.0
        yield token.lower(), parameters, weight


def wants_openmetrics(accept: str) -> bool:
    """Whether OpenMetrics is asked for, and not less than plain text."""
    open_weight = plain_weight = 0.0
    for token, parameters, weight in _parts(accept):
        if token == _OPENMETRICS and parameters.get("version", "") in _OPENMETRICS_VERSIONS:
            open_weight = max(open_weight, weight)
        elif token in _PLAIN:
            plain_weight = max(plain_weight, weight)
    return open_weight > 0 and open_weight >= plain_weight


def wants_gzip(accept_encoding: str) -> bool:
    weights = {token: weight for token, _, weight in _parts(accept_encoding)}
    return weights.get("gzip", weights.get("*", 0.0)) > 0
