"""Exporters of the scheduler's port, 9402. A file in here that registers itself is part of every scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.exporters.registry import Registry
from nvshare.metrics.scheduler import SCHEDULER

if TYPE_CHECKING:
    from nvshare.exporters.scheduler.view import View

EXPORTERS: Final[Registry[View]] = Registry(__name__, SCHEDULER)
