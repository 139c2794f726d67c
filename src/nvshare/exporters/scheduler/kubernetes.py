"""What is asked of the Kubernetes API server, and what comes of it."""

from __future__ import annotations

from nvshare.exporters.scheduler import EXPORTERS
from nvshare.exporters.scheduler.view import View
from nvshare.exporters.steps import Families
from nvshare.metrics.families import Family
from nvshare.metrics.scheduler import kubernetes as c


def families(view: View) -> Families:
    figures, events = view.kubernetes, view.figures.events
    yield Family(c.KUBERNETES_PODS, [((), figures.pods)])
    yield Family(c.KUBERNETES_OVERLOOKED, [((), figures.overlooked)])
    counts = (
        (c.KUBERNETES_LISTS, figures.lists),
        (c.KUBERNETES_WATCHES, figures.watches),
        (c.KUBERNETES_EVENTS, figures.events),
    )
    for metric, by_source in counts:
        yield Family(metric, [((source,), count) for source, count in by_source.items()])
    yield Family(c.KUBERNETES_BAD_ANNOTATIONS, [((), events.get("annotations_bad", 0))])
    yield Family(c.KUBERNETES_UNKNOWN_PODS, [((), events.get("pods_started_unknown", 0))])
    yield Family(c.KUBERNETES_WARNINGS, [((result,), count) for result, count in figures.warnings.items()])
    yield Family(c.POD_CLAIMS_IGNORED, [((), events.get("pod_claims_ignored", 0))])


EXPORTERS.register(__name__, lambda: families)
