"""The cluster exporter's settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nvshare.exporters import kubernetes_access
from nvshare.exporters.monitor.settings import NAMES, READ_ELSEWHERE, WEB_CONFIG
from nvshare.runtime.settings import LOG_SETTINGS, Address, Config, Setting, SettingTable, markdown_rows

CLUSTER_SETTINGS: Final = (
    *LOG_SETTINGS,
    Setting("NVSHARE_CLUSTER_ADDR", "31993", Address(), "address that the cluster's metrics are served on"),
    NAMES,
    kubernetes_access.SETTING._replace(default="on"),
    WEB_CONFIG,
)
_TABLE: Final = SettingTable(CLUSTER_SETTINGS, READ_ELSEWHERE)


def load(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None) -> Config:
    """Every setting with its source. Raises SettingError or ConfigError."""
    values = _TABLE.load(flags, environment, file, {})
    return Config(values, tuple(_TABLE.unknown_variables(environment)), _TABLE.fixed)


def settings_section() -> list[str]:
    """For docs/settings.md."""
    return [
        "",
        "## Of the cluster exporter",
        "",
        "From the table in `src/nvshare/exporters/cluster/settings.py`.",
        "",
        "| variable | default | unit | accepted | SIGHUP | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
        *markdown_rows(CLUSTER_SETTINGS[len(LOG_SETTINGS) :]),
    ]
