"""What the daemon is told, and by whom.

1. A flag beats the environment, the environment the file, the file the default; an empty value is no value.
2. The file is YAML: the variables' names in lower case, without their prefix. An unknown name is an error.
3. Every value passes the check of its row, wherever it came from, and the error names variable and value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import yaml

from nvshare.core.settings import (
    LIBRARY_SETTINGS,
    SETTINGS,
    Choice,
    SettingError,
    SettingRow,
    Settings,
    Whole,
    library_section,
    read_settings,
    settings_page,
)
from nvshare.core.spelling import did_you_mean, nearest
from nvshare.core.units import UnitError
from nvshare.gpu.inventory import ACCEPTED_LIST, parse_device_list
from nvshare.node.users import ServedGroup, TermsList, Users, look_up

PREFIX: Final = "NVSHARE_"
_FILE_BYTES_MAX: Final = 1 << 20
_LABEL: Final = "[0-9A-Za-z-]{1,63}"
"""Names with an empty or a longer part between their dots are not even looked up."""
_ADDRESS: Final = re.compile(
    rf"(?:(?:{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{{1,5}})"
)


_ELSEWHERE: Final = (
    "NVSHARE_SIM",
    "NVSHARE_SIM_DIR",
    "NVSHARE_SIM_LIB",
    "NVSHARE_REQUIRE_ALL",
    "NVSHARE_COMPILE",
)
"""Variables that neither the daemon nor the library in programs reads."""
_OF_KUBERNETES: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)")
"""What it sets in every pod for a service whose name begins with nvshare."""


class ConfigError(Exception):
    """The configuration file cannot be used."""


class AbsolutePath(NamedTuple):
    """A directory."""

    def describe(self) -> str:
        return "an absolute path of at most 90 bytes, so that a socket's name fits behind it"

    def read(self, text: str) -> str | None:
        fits = text.startswith("/") and len(os.fsencode(text)) <= 90 and "\0" not in text
        return os.path.normpath(text) if fits else None


class Gpus(NamedTuple):
    """Where to learn of GPUs."""

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


class Address(NamedTuple):
    """Where to listen."""

    def describe(self) -> str:
        return "host:port, port or [v6]:port, with a port from 1 to 65535"

    def read(self, text: str) -> str | None:
        match = _ADDRESS.fullmatch(text)
        return text if match and 1 <= int(match["port"]) <= 65_535 else None


class FilePath(NamedTuple):
    """A file, or none."""

    def describe(self) -> str:
        return "an absolute path"

    def read(self, text: str) -> str | None:
        return text if text.startswith("/") and "\0" not in text else None


class DaemonRow(NamedTuple):
    """One variable that only the daemon reads. ``live``: SIGHUP can change it."""

    variable: str
    default: str
    accepts: Choice | Whole | AbsolutePath | FilePath | Gpus | Address | ServedGroup | TermsList
    meaning: str
    live: bool = False


_SWITCH: Final = Choice(("0", "1", "false", "true"))


MACHINE_SOCK_DIR: Final = "/var/run/nvshare"


def default_directories() -> tuple[str, str]:
    """Where the sockets are when nobody says: for the whole machine as root, else for one user."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() != 0 and runtime.startswith("/"):
        return f"{runtime}/nvshare", f"{runtime}/nvshare-private"
    return MACHINE_SOCK_DIR, "/run/nvshare-private"


DAEMON_SETTINGS: Final = (
    DaemonRow(
        "NVSHARE_SOCK_DIR",
        "/var/run/nvshare",
        AbsolutePath(),
        "directory of scheduler.sock, which tenants reach; $XDG_RUNTIME_DIR/nvshare when not root",
    ),
    DaemonRow(
        "NVSHARE_PRIVATE_DIR",
        "/run/nvshare-private",
        AbsolutePath(),
        "directory of control.sock, checkpoint and token, for the daemon's user alone;"
        " $XDG_RUNTIME_DIR/nvshare-private when not root",
    ),
    DaemonRow(
        "NVSHARE_GPUS",
        "auto",
        Gpus(),
        "GPUs of the node: nvml asks the driver, a list states them, auto is nvml if it answers and else"
        " believes well-formed GPU- keys",
    ),
    DaemonRow(
        "NVSHARE_USERS",
        "nvshare",
        ServedGroup(),
        "which users of the machine may use root's node by `nvshare run` and `nvshare ctl`: the members of a"
        " group, all, or none but root",
        live=True,
    ),
    DaemonRow(
        "NVSHARE_USER_DEFAULTS",
        "",
        TermsList(("core", "memory")),
        "limits of a user's pod on root's node where nobody states any; the first entry that fits decides",
        live=True,
    ),
    DaemonRow(
        "NVSHARE_USER_CEILINGS",
        "",
        TermsList(("core", "memory", "pods")),
        "what a user's pod on root's node may have at most, whoever asks for more, and how many pods he may"
        " have on GPUs at a time; the first entry that fits decides",
        live=True,
    ),
    DaemonRow(
        "NVSHARE_LOG",
        "info",
        Choice(("error", "warning", "info", "debug", "off")),
        "least level that is logged",
        live=True,
    ),
    DaemonRow("NVSHARE_LOG_FORMAT", "text", Choice(("text", "json")), "form of a log line", live=True),
    DaemonRow("NVSHARE_DEBUG", "0", _SWITCH, "1 is the same as NVSHARE_LOG=debug; 0 is off", live=True),
    DaemonRow(
        "NVSHARE_ON_UNRESPONSIVE",
        "mark",
        Choice(("mark", "kill")),
        "what becomes of a process that has not drained for NVSHARE_DROP_TIMEOUT_SEC: mark only shows it, and"
        " kill ends it by SIGKILL",
        live=True,
    ),
    DaemonRow(
        "NVSHARE_CHECK",
        "0",
        _SWITCH,
        "1 audits the scheduler's books after every event, which costs time; 0 after one event in many. A"
        " difference is logged and counted, and the daemon goes on",
    ),
    DaemonRow(
        "NVSHARE_METRICS_ENABLE",
        "0",
        _SWITCH,
        "1 serves metrics and looks at the GPUs again and again; 0 does neither",
    ),
    DaemonRow("NVSHARE_METRICS_ADDR", "0.0.0.0:9402", Address(), "where metrics are served"),
    DaemonRow(
        "NVSHARE_METRICS_WEB_CONFIG_FILE",
        "",
        FilePath(),
        "TLS and users of the metrics port, in the form of Prometheus exporters; --web.config.file",
    ),
    DaemonRow(
        "NVSHARE_METRICS_NVML_INTERVAL_MS", "1000", Whole(100, 5_000, "ms"), "how often GPUs are looked at"
    ),
    DaemonRow(
        "NVSHARE_METRICS_DEBUG_LABELS",
        "1",
        _SWITCH,
        "1 shows each process (client_id, host_pid, process:PID:START); 0 shows pods, their processes summed",
    ),
    DaemonRow(
        "NVSHARE_METRICS_STALE_TTL_SEC",
        "300",
        Whole(1, 86_400, "s"),
        "how long the totals of a pod are shown after it has gone; its processes' series end at once",
    ),
)
_FIXED: Final = tuple(row.variable for row in DAEMON_SETTINGS if not row.live)


class Value(NamedTuple):
    """One setting: as it was written, and who wrote it."""

    text: str
    source: str  # flag, environment, file, default


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a daemon."""

    values: Mapping[str, Value]
    core: Settings
    warnings: tuple[str, ...]
    users: Users = field(default_factory=Users)

    def text(self, variable: str) -> str:
        return self.values[variable].text

    def switched_on(self, variable: str) -> bool:
        return self.text(variable) in ("1", "true")

    def whole(self, variable: str) -> int:
        return int(self.text(variable))

    @property
    def sock_dir(self) -> Path:
        return Path(self.text("NVSHARE_SOCK_DIR"))

    @property
    def private_dir(self) -> Path:
        return Path(self.text("NVSHARE_PRIVATE_DIR"))

    @property
    def log_level(self) -> str:
        return "debug" if self.switched_on("NVSHARE_DEBUG") else self.text("NVSHARE_LOG")


def _rows() -> dict[str, SettingRow | DaemonRow]:
    return {row.variable: row for row in (*DAEMON_SETTINGS, *SETTINGS)}


def read_file(path: Path) -> dict[str, str]:
    """The file's settings as text, by variable."""
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES_MAX + 1)
        if len(raw) > _FILE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {_FILE_BYTES_MAX} bytes")
        content = yaml.safe_load(raw)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # a date may be none, nesting deep
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a mapping of names to values")
    rows = _rows()
    values: dict[str, str] = {}
    for name, value in content.items():
        variable = f"{PREFIX}{name}".upper()
        if variable not in rows or name != str(name).lower():
            known = sorted(row.removeprefix(PREFIX).lower() for row in rows)
            hint = did_you_mean(str(name), known) or f"; accepted: {', '.join(known)}"
            raise ConfigError(f"{path}: unknown setting {name!r}{hint}")
        if isinstance(value, bool):
            value = "1" if value else "0"
        if not isinstance(value, str | int):
            raise ConfigError(f"{path}: {name}: {value!r} is not accepted; accepted: text or a whole number")
        values[variable] = str(value)
    return values


def load(flags: Mapping[str, str], environment: Mapping[str, str], file: Path | None) -> Config:
    """Every setting with its source. Raises SettingError or ConfigError."""
    layers = (
        ("flag", flags),
        ("environment", environment),
        ("file", read_file(file) if file else {}),
    )
    sock_dir, private_dir = default_directories()
    own_defaults = {"NVSHARE_SOCK_DIR": sock_dir, "NVSHARE_PRIVATE_DIR": private_dir}
    values: dict[str, Value] = {}
    for variable, row in _rows().items():
        value = Value(own_defaults.get(variable, row.default), "default")
        for source, layer in reversed(layers):
            text = layer.get(variable, "")
            if not text:
                continue
            if row.accepts.read(text) is None:
                if source == "file":
                    name = variable.removeprefix(PREFIX).lower()
                    raise ConfigError(
                        f"{file}: {name}: {text!r} is not accepted; accepted: {row.accepts.describe()}"
                    )
                raise SettingError(variable, text, row.accepts.describe())
            value = Value(text, source)
        values[variable] = value
    said = {variable: value.text for variable, value in values.items() if value.source != "default"}
    core, warnings = read_settings(said)
    variables = ("NVSHARE_USERS", "NVSHARE_USER_DEFAULTS", "NVSHARE_USER_CEILINGS")
    users, unknown = look_up(*(values[variable].text for variable in variables))
    return Config(values, core, (*warnings, *unknown_variables(environment), *unknown), users)


def _meant(name: str, known: Iterable[str]) -> str:
    """By what follows the prefix, which makes all of them look alike."""
    found = nearest(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known])
    return f"; did you mean {PREFIX}{found}?" if found else ""


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """A warning for each variable that looks like ours and is none, with what was probably meant."""
    known = {*_rows(), *(row.variable for row in LIBRARY_SETTINGS), *_ELSEWHERE}
    return [
        f"{name} is set, but nvshare has no such variable{_meant(name, known)}"
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known and not _OF_KUBERNETES.search(name)
    ]


def needs_restart(old: Config, new: Config) -> list[str]:
    """The variables whose new value a running daemon cannot take."""
    return [variable for variable in _FIXED if old.text(variable) != new.text(variable)]


def as_far_as_live(old: Config, new: Config) -> Config:
    """What a running daemon has when it is told new settings: those that it cannot take stay as they are."""
    return replace(new, values={**new.values, **{variable: old.values[variable] for variable in _FIXED}})


def changed_live(old: Config, new: Config) -> list[str]:
    """The variables whose new value it takes at once."""
    return [v for v in new.values if v not in _FIXED and old.text(v) != new.text(v)]


def print_config(config: Config) -> str:
    """For ``--print-config``: variable, value, source."""
    width = max(len(variable) for variable in config.values)
    return "\n".join(
        f"{variable:<{width}}  {value.text}  ({value.source})" for variable, value in config.values.items()
    )


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
    ]
    for row in DAEMON_SETTINGS:
        unit = row.accepts.unit if isinstance(row.accepts, Whole) else "–"
        when = "at once" if row.live else "restart"
        cells = [f"`{row.variable}`", f"`{row.default}`", unit, row.accepts.describe(), when, row.meaning]
        lines.append("| " + " | ".join(cells) + " |")
    return settings_page() + "\n".join([*lines, *library_section()]) + "\n"
