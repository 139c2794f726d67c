"""The daemon itself: messages, refusals, the loop, checkpoints, and the sources of its figures."""

from __future__ import annotations

import platform
from typing import Final

from nvshare import __version__
from nvshare.build import core_kind
from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.view import View
from nvshare.exporters.steps import Families
from nvshare.metrics.families import Family, Metric
from nvshare.metrics.scheduler import daemon as c
from nvshare.metrics.scheduler.scheduler import DISCONNECTS, MESSAGES

SCHEDULER: Final = "scheduler"
_PAUSES: Final = {"full": "accept_paused_full", "exhausted": "accept_paused_exhausted"}


def families(view: View) -> Families:
    figures = view.figures
    yield Family(c.BUILD_INFO, [((__version__, platform.python_version(), core_kind()), 1)])
    yield Family(MESSAGES, [((kind,), count) for kind, count in figures.messages.items()])
    yield Family(DISCONNECTS, [((reason,), count) for reason, count in figures.disconnects.items()])
    yield Family(c.KILLED, [((reason,), count) for reason, count in figures.killed.items()])
    yield Family(c.REFUSED, [((reason,), count) for reason, count in figures.refused.items()])
    pauses = [((reason,), figures.events.get(event, 0)) for reason, event in _PAUSES.items()]
    yield Family(c.ACCEPT_PAUSES, pauses)
    single: tuple[tuple[Metric, int], ...] = (
        (c.SCHEDULING_ON, int(figures.scheduling_on)),
        (c.CLIENTS, figures.clients),
        (c.EXPECTED, figures.expected),
        (c.UNREGISTERED, figures.unregistered),
        (c.CALLBACK_ERRORS, figures.events.get("callback_raised", 0)),
        (c.BOOKS_WRONG, figures.events.get("books_wrong", 0)),
        (c.CLOCK_WENT_BACK, figures.events.get("clock_went_back", 0)),
        (c.CHECKPOINTS_WRITTEN, figures.checkpoints_written),
        (c.CHECKPOINTS_FAILED, figures.checkpoints_failed),
        (c.JOURNAL_FAILED, figures.events.get("journal_failed", 0)),
        (c.HTTP_CONNECTIONS, figures.http_connections),
        (c.HTTP_REQUESTS, figures.http_requests),
        (c.WEB_CONFIG_FAILURES, figures.web_config_failures),
    )
    for metric, value in single:
        yield Family(metric, [((), value)])
    yield Family(c.CHECKPOINT_AGE, [((), figures.checkpoint_age_ns / 1e9)])
    yield Family(c.STANDSTILL, [((), figures.standstill_ns / 1e9)])
    yield Family(c.LOOP_LAG, [((), figures.lag)])
    yield Family(c.LOOP_CALLBACK, [((), figures.callbacks)])
    yield Family(c.SCRAPE_STEP, [((), figures.scrape_steps)])
    yield from _sources(view)


def _sources(view: View) -> Families:
    sources = view.sources
    yield Family(c.SOURCE_UP, [((SCHEDULER,), 1), *(((name,), int(s.up)) for name, s in sources.items())])
    yield Family(c.SOURCE_HANGS, [((name,), s.hangs) for name, s in sources.items()])
    yield Family(c.SOURCE_FAILURES, [((name,), s.failures) for name, s in sources.items()])
    aged = [(name, s.taken_ns) for name, s in sources.items() if s.taken_ns >= 0]
    ages = [((name,), max(0, view.taken_ns - taken_ns) / 1e9) for name, taken_ns in aged]
    yield Family(c.SNAPSHOT_AGE, [((SCHEDULER,), 0), *ages])


EXPORTERS.register(__name__, lambda: families)
