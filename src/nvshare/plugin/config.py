"""The device plugin's settings. ``nvshare.runtime.settings`` says how they are read."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.core.settings import Choice, IntegerRange
from nvshare.plugin.devices import SLOTS_MAX, Policy
from nvshare.pods.kubelet.interface import KUBELET_DIR
from nvshare.runtime import settings
from nvshare.runtime.errors import StartError
from nvshare.runtime.paths import MACHINE_SOCK_DIR
from nvshare.runtime.settings import (
    LOG_SETTINGS,
    SWITCH,
    AbsolutePath,
    Address,
    FilePath,
    NodeName,
    Setting,
    SettingTable,
    markdown_rows,
)

IGNORED_XIDS: Final = "13,31,43,45,68,109"
"""Faults of programs, not of GPUs: those that NVIDIA's device plugin ignores too."""
_XIDS_MAX: Final = 64
_GPUS_MAX: Final = 128
_GPU: Final = re.compile(r"(?:GPU|MIG)-[0-9a-f-]{36}|[0-9]{1,3}")
_CDI_KIND: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,62})/[A-Za-z](?:[A-Za-z0-9_.-]{0,62})")


class Xids(NamedTuple):
    def describe(self) -> str:
        return f"up to {_XIDS_MAX} whole numbers with commas between them, or none"

    def read(self, text: str) -> frozenset[int] | None:
        if text == "none":
            return frozenset()
        words = text.split(",")
        fit = len(words) <= _XIDS_MAX and all(re.fullmatch("[0-9]{1,5}", word) for word in words)
        return frozenset(map(int, words)) if fit else None


class GpuList(NamedTuple):
    def describe(self) -> str:
        return "UUIDs (GPU-..., MIG-...) and indices with commas between them"

    def read(self, text: str) -> frozenset[str] | None:
        words = text.split(",")
        fit = len(words) <= _GPUS_MAX and all(map(_GPU.fullmatch, words))
        return frozenset(words) if fit else None


class CdiKind(NamedTuple):
    def describe(self) -> str:
        return "vendor/class, as nvidia.com/gpu"

    def read(self, text: str) -> str | None:
        return text if _CDI_KIND.fullmatch(text) else None


PLUGIN_SETTINGS: Final = (
    Setting(
        "NVSHARE_VIRTUAL_DEVICES",
        "10",
        IntegerRange(1, SLOTS_MAX, "devices"),
        "devices that a GPU is offered as",
    ),
    Setting(
        "NVSHARE_ALLOCATION_POLICY",
        "spread",
        Choice(tuple(Policy)),
        "which GPU is preferred for a container: spread takes the one with the fewest devices held, pack the"
        " one with the most. A container with several devices gets them on different GPUs either way",
        live=True,
    ),
    Setting("NVSHARE_EXCLUDE_GPUS", "", GpuList(), "GPUs that are not offered"),
    Setting(
        "NVSHARE_HEALTH_IGNORE_XID",
        IGNORED_XIDS,
        Xids(),
        "critical errors (XIDs) that do not make a GPU unhealthy, because programs cause them",
    ),
    Setting(
        "NVSHARE_CDI_KIND",
        "",
        CdiKind(),
        "kind of the CDI devices that containers get, each named by its UUID; empty: NVIDIA's container"
        " runtime takes the GPUs from NVIDIA_VISIBLE_DEVICES",
    ),
    Setting(
        "NVSHARE_PRELOAD",
        "environment",
        Choice(("environment", "file")),
        "how programs get the library: environment sets LD_PRELOAD, in the place of the image's own; file"
        " mounts /etc/ld.so.preload, and LD_PRELOAD of image and pod stays theirs",
    ),
    Setting(
        "NVSHARE_SOCK_DIR",
        MACHINE_SOCK_DIR,
        AbsolutePath(),
        "directory on the node with the scheduler's socket and the library, which containers get",
    ),
    Setting(
        "NVSHARE_PLUGIN_DIR",
        "/var/lib/nvshare",
        AbsolutePath(),
        "directory on the node for what else containers get: /etc/ld.so.preload, the simulated driver. Two"
        " plugins with the same one never run at a time: the second waits for the first to end",
    ),
    Setting("NVSHARE_KUBELET_DIR", KUBELET_DIR, AbsolutePath(), "the kubelet's directory"),
    Setting(
        "NVSHARE_LIBRARY", "", FilePath(), "libnvshare.so to bring to the node; empty: that of the package"
    ),
    Setting(
        "NVSHARE_KUBERNETES",
        "auto",
        Choice(("auto", "on", "off")),
        "whether the node's annotation nvshare.com/node-gpus is written: auto if this is a pod of a"
        " cluster; on outside of one uses what KUBECONFIG names",
    ),
    Setting(
        "NVSHARE_NODE_NAME",
        "",
        NodeName(),
        "the node's name in Kubernetes, in a DaemonSet from the field spec.nodeName",
    ),
    *LOG_SETTINGS,
    Setting("NVSHARE_METRICS_ENABLE", "0", SWITCH, "1 serves metrics, /healthz and /readyz"),
    Setting("NVSHARE_METRICS_ADDR", "0.0.0.0:9403", Address(), "address that metrics are served on"),
    Setting(
        "NVSHARE_METRICS_WEB_CONFIG_FILE",
        "",
        FilePath(),
        "TLS and users of the metrics port, in the form of Prometheus exporters; --web.config.file",
    ),
)
_READ_ELSEWHERE: Final = ("NVSHARE_SIM", "NVSHARE_SIM_DIR", "NVSHARE_SIM_LIB", "NVSHARE_REQUIRE_ALL")
_TABLE: Final = SettingTable(PLUGIN_SETTINGS, _READ_ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Config(settings.Config):
    """All settings of the plugin."""

    @property
    def policy(self) -> Policy:
        return Policy(self.text("NVSHARE_ALLOCATION_POLICY"))

    @property
    def excluded(self) -> frozenset[str]:
        return GpuList().read(self.text("NVSHARE_EXCLUDE_GPUS")) or frozenset()

    @property
    def ignored_xids(self) -> frozenset[int]:
        return Xids().read(self.text("NVSHARE_HEALTH_IGNORE_XID")) or frozenset()

    def path(self, variable: str) -> Path:
        return Path(self.text(variable))


def load(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None) -> Config:
    """Every setting with its source. Raises SettingError or ConfigError."""
    values = _TABLE.load(flags, environment, file, {})
    return Config(values, tuple(_TABLE.unknown_variables(environment)), _TABLE.fixed)


def simulated_state_dir(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Of the simulated GPUs, if those are what is shared. Raises StartError."""
    if not environment.get("NVSHARE_SIM"):
        return None
    directory = environment.get("NVSHARE_SIM_DIR", "")
    if not directory.startswith("/"):
        raise StartError(
            f"NVSHARE_SIM is set, and NVSHARE_SIM_DIR={directory!r} is not an absolute path; containers get"
            " that directory, so name one of the node"
        )
    return Path(directory)


def plugin_settings_section() -> list[str]:
    """Of docs/settings.md."""
    return [
        "",
        "## Of the device plugin",
        "",
        "From the table in `src/nvshare/plugin/config.py`; read as the daemon's are, and shown by",
        "`nvshare device-plugin --print-config`.",
        "",
        "| variable | default | unit | accepted | SIGHUP | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
        *markdown_rows(PLUGIN_SETTINGS),
        "",
    ]
