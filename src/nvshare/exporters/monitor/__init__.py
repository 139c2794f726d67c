"""Exporters of the node monitor's port, 9394. A file in here that registers itself is part of every
scrape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.exporters.registry import Registry
from nvshare.metrics.monitor import MONITOR

if TYPE_CHECKING:
    from nvshare.exporters.monitor.view import View

EXPORTERS: Final[Registry[View]] = Registry(__name__, MONITOR)
