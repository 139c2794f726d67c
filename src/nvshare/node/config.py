"""The scheduler's settings. ``nvshare.runtime.settings`` says how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from nvshare.core.settings import (
    LIBRARY_SETTINGS,
    SETTINGS,
    Choice,
    IntegerRange,
    Settings,
    library_section,
    read_settings,
    settings_page,
)
from nvshare.core.units import (
    ACCEPTED_BYTES,
    ACCEPTED_PERCENT,
    LEAST_MEMORY_BYTES,
    UnitError,
    format_bytes,
    parse_memory,
    parse_percent,
)
from nvshare.gpu.inventory import ACCEPTED_LIST, parse_device_list
from nvshare.node.users import DEFAULT_GROUP, ServedGroup, TermsList, Users, look_up
from nvshare.runtime import settings
from nvshare.runtime.paths import (
    CONTROL_SOCKET,
    MACHINE_PRIVATE_DIR,
    MACHINE_SOCK_DIR,
    SCHEDULER_SOCKET,
    default_directories,
)
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

_READ_ELSEWHERE: Final = (
    "NVSHARE_SIM",
    "NVSHARE_SIM_DIR",
    "NVSHARE_SIM_LIB",
    "NVSHARE_REQUIRE_ALL",
    "NVSHARE_COMPILE",
)
"""Variables that neither the daemon nor the library in programs reads."""


class Gpus(NamedTuple):
    """The source of the list of GPUs."""

    def describe(self) -> str:
        return f"auto, nvml, or {ACCEPTED_LIST}"

    def read(self, text: str) -> str | None:
        if text in ("auto", "nvml"):
            return text
        try:
            parse_device_list(text)
        except UnitError:
            return None
        return text


class Percent(NamedTuple):
    """A compute quota."""

    def describe(self) -> str:
        return ACCEPTED_PERCENT

    def read(self, text: str) -> int | None:
        try:
            return parse_percent(text)
        except UnitError:
            return None


class Memory(NamedTuple):
    """A memory limit."""

    def describe(self) -> str:
        return f"{ACCEPTED_BYTES}; {format_bytes(LEAST_MEMORY_BYTES)} or more"

    def read(self, text: str) -> int | None:
        try:
            return parse_memory(text) or None
        except UnitError:
            return None


DAEMON_SETTINGS: Final = (
    Setting(
        "NVSHARE_SOCK_DIR",
        MACHINE_SOCK_DIR,
        AbsolutePath(),
        f"directory of {SCHEDULER_SOCKET}, which tenants reach; $XDG_RUNTIME_DIR/nvshare when not root",
    ),
    Setting(
        "NVSHARE_PRIVATE_DIR",
        MACHINE_PRIVATE_DIR,
        AbsolutePath(),
        f"directory of {CONTROL_SOCKET}, checkpoint and token, for the daemon's user alone;"
        " $XDG_RUNTIME_DIR/nvshare-private when not root",
    ),
    Setting(
        "NVSHARE_GPUS",
        "auto",
        Gpus(),
        "GPUs of the node: nvml asks the driver, a list states them, auto asks the driver and"
        " accepts any well-formed GPU- key if it does not answer",
    ),
    Setting(
        "NVSHARE_USERS",
        DEFAULT_GROUP,
        ServedGroup(),
        "which users of the machine may use root's node by `nvshare run` and `nvshare ctl`: the members of a"
        " group, all, or none but root",
        live=True,
    ),
    Setting(
        "NVSHARE_USER_DEFAULTS",
        "",
        TermsList(("core", "memory")),
        "limits of a user's pod on root's node without any other limits; the first entry that fits decides",
        live=True,
    ),
    Setting(
        "NVSHARE_USER_CEILINGS",
        "",
        TermsList(("core", "memory", "pods")),
        "highest limits of a user's pod on root's node, whatever it asks for, and how many pods the user may"
        " have on GPUs at a time; the first entry that fits decides",
        live=True,
    ),
    Setting(
        "NVSHARE_KUBERNETES",
        "auto",
        Choice(("auto", "on", "off")),
        "whether names and limits of pods come from the Kubernetes API server: auto if this is a pod of a"
        " cluster; on outside of one uses what KUBECONFIG names",
    ),
    Setting(
        "NVSHARE_NODE_NAME",
        "",
        NodeName(),
        "the node's name in Kubernetes, in a DaemonSet from the field spec.nodeName",
    ),
    Setting(
        "NVSHARE_UNKNOWN_POD",
        "unlimited",
        Choice(("unlimited", "wait")),
        "what holds for a Kubernetes pod that the API server has not named within 2 s: unlimited lets it"
        " start with the cluster's defaults alone, wait lets it wait",
        live=True,
    ),
    Setting(
        "NVSHARE_DEFAULT_CORE_LIMIT",
        "",
        Percent(),
        "compute quota in percent of a Kubernetes pod without one, unless its namespace says another",
        live=True,
    ),
    Setting(
        "NVSHARE_DEFAULT_MEMORY_LIMIT",
        "",
        Memory(),
        "memory limit of a Kubernetes pod without one, unless its namespace says another",
        live=True,
    ),
    *LOG_SETTINGS,
    Setting(
        "NVSHARE_ON_UNRESPONSIVE",
        "mark",
        Choice(("mark", "kill")),
        "what happens to a process that has not drained for NVSHARE_DROP_TIMEOUT_SEC: mark only shows it,"
        " kill ends it by SIGKILL",
        live=True,
    ),
    Setting(
        "NVSHARE_CHECK",
        "0",
        SWITCH,
        "1 audits the scheduler's accounts after every event, which costs time; 0 after one event in many. An"
        " inconsistency is logged and counted, and the daemon goes on",
    ),
    Setting(
        "NVSHARE_METRICS_ENABLE",
        "0",
        SWITCH,
        "1 serves metrics and samples the GPUs; 0 does neither",
    ),
    Setting("NVSHARE_METRICS_ADDR", "0.0.0.0:9402", Address(), "address that metrics are served on"),
    Setting(
        "NVSHARE_METRICS_WEB_CONFIG_FILE",
        "",
        FilePath(),
        "TLS and users of the metrics port, in the form of Prometheus exporters; --web.config.file",
    ),
    Setting(
        "NVSHARE_METRICS_NVML_INTERVAL_MS",
        "1000",
        IntegerRange(100, 5_000, "ms"),
        "how often GPUs are sampled",
    ),
    Setting(
        "NVSHARE_METRICS_DEBUG_LABELS",
        "1",
        SWITCH,
        "1 shows each process (client_id, host_pid, process:PID:START); 0 shows pods, their processes summed",
    ),
    Setting(
        "NVSHARE_METRICS_STALE_TTL_SEC",
        "300",
        IntegerRange(1, 86_400, "s"),
        "how long the totals of a pod are shown after it has gone; its processes' series end at once",
    ),
)
_CORE_SETTINGS: Final = tuple(
    Setting(row.variable, row.default, row.accepts, row.meaning, live=True) for row in SETTINGS
)
_TABLE: Final = SettingTable(
    (*DAEMON_SETTINGS, *_CORE_SETTINGS), (*(row.variable for row in LIBRARY_SETTINGS), *_READ_ELSEWHERE)
)
unknown_variables: Final = _TABLE.unknown_variables


@dataclass(frozen=True, slots=True)
class Config(settings.Config):
    """All settings of the scheduler."""

    core: Settings
    users: Users

    @property
    def sock_dir(self) -> Path:
        return Path(self.text("NVSHARE_SOCK_DIR"))

    @property
    def private_dir(self) -> Path:
        return Path(self.text("NVSHARE_PRIVATE_DIR"))

    @property
    def default_limits(self) -> tuple[int | None, int | None]:
        """Of Kubernetes pods: memory and compute."""
        memory, core = self.text("NVSHARE_DEFAULT_MEMORY_LIMIT"), self.text("NVSHARE_DEFAULT_CORE_LIMIT")
        return (Memory().read(memory) if memory else None, Percent().read(core) if core else None)


def load(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None) -> Config:
    """Every setting with its source. Raises SettingError or ConfigError."""
    sock_dir, private_dir = default_directories()
    defaults = {"NVSHARE_SOCK_DIR": sock_dir, "NVSHARE_PRIVATE_DIR": private_dir}
    values = _TABLE.load(flags, environment, file, defaults)
    stated = {variable: value.text for variable, value in values.items() if value.source != "default"}
    core, warnings = read_settings(stated)
    variables = ("NVSHARE_USERS", "NVSHARE_USER_DEFAULTS", "NVSHARE_USER_CEILINGS")
    users, unknown_users = look_up(*(values[variable].text for variable in variables))
    warnings = [*warnings, *unknown_variables(environment), *unknown_users]
    return Config(values, tuple(warnings), _TABLE.fixed, core, users)


def daemon_settings_page() -> str:
    """docs/settings.md: the core's table and the daemon's."""
    lines = [
        "",
        "## Of the daemon alone",
        "",
        "From the table in `src/nvshare/node/config.py`. A flag beats the environment, the environment the",
        "configuration file (YAML, the names in lower case without `NVSHARE_`), the file the default.",
        "`nvshare scheduler --print-config` shows each value and where it came from. SIGHUP reads file and",
        "environment again; what is marked with a restart keeps its value until then.",
        "",
        "| variable | default | unit | accepted | SIGHUP | meaning |",
        "| --- | --- | --- | --- | --- | --- |",
        *markdown_rows(DAEMON_SETTINGS),
    ]
    return settings_page() + "\n".join([*lines, *library_section()]) + "\n"
