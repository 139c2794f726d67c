"""The settings of the k8s-vgpu-monitor profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.core.settings import IntegerRange
from nvshare.exporters import kubernetes_access
from nvshare.exporters.monitor.settings import NODE_NAME, READ_ELSEWHERE, WEB_CONFIG
from nvshare.runtime.settings import (
    LOG_SETTINGS,
    SWITCH,
    Address,
    Config,
    FilePath,
    Setting,
    SettingTable,
    markdown_rows,
)


class AnyPath(NamedTuple):
    """A file, relative to the working directory if it is not absolute."""

    def describe(self) -> str:
        return "a path"

    def read(self, text: str) -> str | None:
        return text if "\0" not in text else None


VGPU_SETTINGS: Final = (
    *LOG_SETTINGS,
    Setting("NVSHARE_VGPU_ADDR", "8080", Address(), "address that the profile's metrics are served on"),
    Setting(
        "NVSHARE_VGPU_RATIO_FILE",
        "gpu_allocation.txt",
        AnyPath(),
        "file with the number of parts that a GPU is divided into; --ratio-file",
    ),
    Setting(
        "NVSHARE_VGPU_INTERVAL_SEC", "5", IntegerRange(1, 60, "s"), "how often figures are taken; --interval"
    ),
    Setting(
        "NVSHARE_VGPU_NAMESPACE_LABEL", "1", SWITCH, "0 leaves out the label namespace, as the original does"
    ),
    Setting(
        "NVSHARE_VGPU_KUBELET_SOCKET",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
        FilePath(),
        "the kubelet's socket, which says which GPUs a pod has before its first process",
    ),
    NODE_NAME,
    kubernetes_access.SETTING,
    WEB_CONFIG,
)
_TABLE: Final = SettingTable(VGPU_SETTINGS, READ_ELSEWHERE)
_OTHERS: Final = ("NODE_NAME", "CURRENT_NODE_NAME")


def load(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None) -> Config:
    """Every setting with its source. Raises SettingError or ConfigError."""
    taken = dict(environment)
    for name in _OTHERS:
        if not taken.get(NODE_NAME.variable) and taken.get(name):
            taken[NODE_NAME.variable] = taken[name]
    values = _TABLE.load(flags, taken, file, {})
    return Config(values, tuple(_TABLE.unknown_variables(environment)), _TABLE.fixed)


def settings_section() -> list[str]:
    """For docs/settings.md."""
    return [
        "",
        "## Of the k8s-vgpu-monitor profile",
        "",
        "From the table in `src/nvshare/exporters/vgpu/settings.py`.",
        "",
        "| variable | default | unit | accepted | SIGHUP | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
        *markdown_rows(VGPU_SETTINGS[len(LOG_SETTINGS) :]),
    ]
