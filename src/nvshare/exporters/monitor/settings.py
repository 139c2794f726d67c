"""The node monitor's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.core.settings import IntegerRange
from nvshare.exporters import kubernetes_access
from nvshare.metrics.hami_names import ACCEPTED_NAMES, parse_names
from nvshare.runtime.settings import (
    LOG_SETTINGS,
    SWITCH,
    AbsolutePath,
    Address,
    Config,
    FilePath,
    Setting,
    SettingTable,
    markdown_rows,
)

_NODE: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL: Final = re.compile(r"(?:[a-z0-9.-]{1,253}/)?[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_LABELS_MAX: Final = 16
READ_ELSEWHERE: Final = (
    "NVSHARE_SIM",
    "NVSHARE_SIM_DIR",
    "NVSHARE_SIM_LIB",
    "NVSHARE_REQUIRE_ALL",
    "NVSHARE_COMPILE",
)
"""Variables of ours that the monitor does not read."""


class NodeName(NamedTuple):
    """A node of a cluster."""

    def describe(self) -> str:
        return "a node's name: lower-case letters, digits, hyphens and dots"

    def read(self, text: str) -> str | None:
        return text if _NODE.fullmatch(text) else None


class Names(NamedTuple):
    """Sets of HAMi's names."""

    def describe(self) -> str:
        return ACCEPTED_NAMES

    def read(self, text: str) -> frozenset[str] | None:
        return parse_names(text)


class LabelNames(NamedTuple):
    """Labels of pods."""

    def describe(self) -> str:
        return f"at most {_LABELS_MAX} names of pod labels with commas between them"

    def read(self, text: str) -> tuple[str, ...] | None:
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
        return names if len(names) <= _LABELS_MAX and all(map(_LABEL.fullmatch, names)) else None


NAMES: Final = Setting(
    "NVSHARE_HAMI_NAMES", "seed,current", Names(), "which of HAMi's names are shown; --names"
)
NODE_NAME: Final = Setting(
    "NVSHARE_NODE_NAME",
    "",
    NodeName(),
    "this node's name in Kubernetes; NODE_NAME, as HAMi calls it, counts if this is not set",
)
WEB_CONFIG: Final = Setting(
    "NVSHARE_METRICS_WEB_CONFIG_FILE",
    "",
    FilePath(),
    "TLS and users of the port, in the form of Prometheus exporters; --web.config.file",
)
MONITOR_SETTINGS: Final = (
    *LOG_SETTINGS,
    Setting("NVSHARE_MONITOR_ADDR", "9394", Address(), "address that the monitor's metrics are served on"),
    NAMES,
    Setting("NVSHARE_MONITOR_DEPRECATED", "1", SWITCH, "0 drops HAMi's deprecated names; --no-deprecated"),
    NODE_NAME,
    Setting(
        "NVSHARE_MONITOR_HOOK_PATH",
        "/usr/local/vgpu",
        AbsolutePath(),
        "directory that HAMi's library works in; HOOK_PATH, as HAMi calls it, counts if this is not set",
    ),
    kubernetes_access.SETTING,
    Setting(
        "NVSHARE_MONITOR_NVML_INTERVAL_MS",
        "1000",
        IntegerRange(100, 5_000, "ms"),
        "how often GPUs are sampled",
    ),
    Setting(
        "NVSHARE_MONITOR_POD_LABELS",
        "",
        LabelNames(),
        "labels of pods that become labels of nvshare_monitor_pod_labels, for charges and joins",
    ),
    WEB_CONFIG,
)
_TABLE: Final = SettingTable(MONITOR_SETTINGS, READ_ELSEWHERE)
_HAMIS: Final = {"NVSHARE_NODE_NAME": "NODE_NAME", "NVSHARE_MONITOR_HOOK_PATH": "HOOK_PATH"}


def load(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None) -> Config:
    """Every setting with its source. Raises SettingError or ConfigError."""
    taken = dict(environment)
    for ours, theirs in _HAMIS.items():
        if not taken.get(ours) and taken.get(theirs):
            taken[ours] = taken[theirs]
    values = _TABLE.load(flags, taken, file, {})
    return Config(values, tuple(_TABLE.unknown_variables(environment)), _TABLE.fixed)


def settings_section() -> list[str]:
    """For docs/settings.md."""
    return [
        "",
        "## Of the node monitor",
        "",
        "From the table in `src/nvshare/exporters/monitor/settings.py`.",
        "",
        "| variable | default | unit | accepted | SIGHUP | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
        *markdown_rows(MONITOR_SETTINGS[len(LOG_SETTINGS) :]),
    ]
