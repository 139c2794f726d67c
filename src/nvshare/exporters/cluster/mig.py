"""MIG instances: by the templates that nodes register, and by what pods were given.

A release before v2.10 takes a template for a GPU with its first pod; each of the template's places is shown,
with 1 or 0. While no pod has one, those of the first template are shown with 0. Later releases register no
templates: there is 1 for each instance that a pod has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, repeat

from nvshare.exporters.cluster import EXPORTERS
from nvshare.exporters.cluster.view import View
from nvshare.exporters.steps import Families
from nvshare.hami.mig_allocation import MigAllocation
from nvshare.hami.node_devices import MIG_MODE, NodeDevice
from nvshare.metrics.cluster import hami as c
from nvshare.metrics.families import Sample

Device = tuple[str, str]


class _Held:
    """By node and uuid: places in templates, and instances."""

    def __init__(self, view: View) -> None:
        self.places: defaultdict[Device, list[tuple[int, int]]] = defaultdict(list)
        self.instances: defaultdict[Device, list[MigAllocation]] = defaultdict(list)
        for pod in view.pods:
            for uuid, template, position in pod.mig_places:
                self.places[pod.node, uuid].append((template, position))
            for one in pod.mig:
                if one.instance is not None:
                    self.instances[pod.node, one.gpu_uuid].append(one)


def _mig_devices(view: View) -> Iterator[tuple[str, NodeDevice]]:
    for node in view.nodes:
        for device in node.devices:
            if device.mode == MIG_MODE:
                yield node.name, device


def _slots(view: View, held: _Held) -> Iterator[Sample]:
    for node, device in _mig_devices(view):
        labels = (node, device.uuid, str(device.number))
        places = held.places[node, device.uuid]
        template = places[0][0] if places else 0
        if template < len(device.templates):
            taken = {position for one, position in places if one == template}
            parts = (repeat(part.profile, min(part.instances, 64)) for part in device.templates[template])
            for position, profile in enumerate(chain.from_iterable(parts)):
                yield (*labels, f"{profile}-{position}"), int(position in taken)
        for one in held.instances[node, device.uuid]:
            if one.instance is not None:
                yield (*labels, f"{one.profile}-{one.instance.gpu_instance}"), 1


def _instances(view: View, held: _Held) -> Iterator[Sample]:
    for node, device in _mig_devices(view):
        for one in held.instances[node, device.uuid]:
            if one.instance is not None:
                found = {
                    "node": node,
                    "uuid": device.uuid,
                    "number": str(device.number),
                    "mig_uuid": one.instance.uuid,
                    "profile": one.profile,
                    "gpu_instance": str(one.instance.gpu_instance),
                    "compute_instance_id": str(one.instance.compute_instance),
                    "placement_start": str(one.start),
                    "placement_size": str(one.size),
                }
                yield tuple(found[name] for name in c.MIG_INSTANCE.fields), 1


def families(view: View) -> Families:
    held = _Held(view)
    yield from view.names.families(c.MIG_SLOT, lambda: _slots(view, held))
    yield from view.names.families(c.MIG_INSTANCE, lambda: _instances(view, held))


EXPORTERS.register(__name__, lambda: families)
