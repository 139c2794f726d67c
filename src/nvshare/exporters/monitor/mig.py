"""MIG instances of containers, by the annotation of their pod.

The allocation of releases before v2.10 names a place in a template and no instance, so nothing is shown for
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nvshare.exporters.monitor import EXPORTERS
from nvshare.exporters.monitor.view import View
from nvshare.exporters.steps import Families
from nvshare.metrics.families import Sample
from nvshare.metrics.monitor import hami as c

_ALL_PARTS: Final = 1 << 30
"""Positions in this annotation always count init containers first."""


def _samples(view: View) -> Iterator[Sample]:
    for pod in {pod.uid: pod for pod in view.pods.values()}.values():
        for one in pod.mig:
            container = pod.container_at(one.container, _ALL_PARTS)
            if one.instance is None or not container:
                continue
            found = {
                "namespace": pod.namespace,
                "pod": pod.name,
                "container": container,
                "vdevice": str(one.device),
                "uuid": one.gpu_uuid,
                "gpu_instance": str(one.instance.gpu_instance),
                "mig_uuid": one.instance.uuid,
                "profile": one.profile,
                "compute_instance_id": str(one.instance.compute_instance),
            }
            yield tuple(found[name] for name in c.MIG.fields), 1


def families(view: View) -> Families:
    yield from view.names.families(c.MIG, lambda: _samples(view))


EXPORTERS.register(__name__, lambda: families)
