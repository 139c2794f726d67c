"""GPUs as the driver reports them, by HAMi's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from nvshare.exporters.monitor import EXPORTERS
from nvshare.exporters.monitor.view import View
from nvshare.exporters.steps import Families
from nvshare.gpu.reading import GpuReading
from nvshare.metrics.families import Sample
from nvshare.metrics.hami_names import Named
from nvshare.metrics.monitor import hami as c

_VENDOR: Final = "NVIDIA"
_FIGURES: Final[tuple[tuple[Named, Callable[[GpuReading], int | None]], ...]] = (
    (c.HOST_MEMORY, lambda reading: reading.used_bytes),
    (c.HOST_UTILISATION, lambda reading: reading.gpu_percent),
    (c.HOST_MEMORY_UTILISATION, lambda reading: reading.memory_percent),
)


def device_type(name: str | None) -> str:
    """As HAMi's scheduler writes it since v2.8: it begins with the vendor, once."""
    name = name or ""
    return name if name.startswith(_VENDOR) else f"{_VENDOR}-{name}"


def families(view: View) -> Families:
    for figure, value_of in _FIGURES:
        by_field = {name: place for place, name in enumerate(figure.fields)}

        def samples(
            value_of: Callable[[GpuReading], int | None] = value_of, by_field: dict[str, int] = by_field
        ) -> Iterator[Sample]:
            for reading in view.readings:
                value = value_of(reading)
                if value is not None:
                    labels = {
                        "node": view.node,
                        "number": str(reading.index),
                        "uuid": reading.uuid,
                        "type": device_type(reading.name),
                    }
                    yield tuple(labels[name] for name in by_field), value

        yield from view.names.families(figure, samples)


EXPORTERS.register(__name__, lambda: families)
