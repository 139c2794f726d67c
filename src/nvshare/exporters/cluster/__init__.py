"""Exporters of the cluster's port, 31993. A file in here that registers itself is part of every scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nvshare.exporters.registry import Registry
from nvshare.metrics.cluster import CLUSTER

if TYPE_CHECKING:
    from nvshare.exporters.cluster.view import View

EXPORTERS: Final[Registry[View]] = Registry(__name__, CLUSTER)
