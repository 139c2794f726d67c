"""The catalog of the device plugin's port, 9403."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.catalog import Catalog, Subject
from nvshare.metrics.plugin import devices, plugin

PLUGIN: Final = Catalog(
    subjects=(
        Subject("Devices", ("nvshare_plugin_device", "nvshare_plugin_gpu_")),
        Subject("The plugin and its sources", ("nvshare_plugin_",)),
    ),
    rows=(devices.row, plugin.row),
)
