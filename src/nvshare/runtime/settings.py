"""Settings of a daemon: one row per variable, read from four layers.

1. A flag beats the environment, the environment the file, the file the default. An empty value is no value.
2. The file is YAML, with the variables' names in lower case and without their prefix. An unknown name is an
   error.
3. Every value passes the check of its row, wherever it came from. The error names the variable and the value.
4. A running daemon takes new values of ``live`` rows. Other rows keep their value until a restart.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

import yaml

from nvshare.core.settings import Choice, IntegerRange, SettingError
from nvshare.core.spelling import did_you_mean, nearest

PREFIX: Final = "NVSHARE_"
_FILE_BYTES_MAX: Final = 1 << 20
_LABEL: Final = "[0-9A-Za-z-]{1,63}"
"""Names with an empty or a longer part between their dots are not even looked up."""
_ADDRESS: Final = re.compile(
    rf"(?:(?:{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{{1,5}})"
)
_NODE: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_OF_KUBERNETES: Final = re.compile(r"_(SERVICE_HOST|SERVICE_PORT|PORT)(_|$)")
"""Variables that Kubernetes sets in every pod for a service whose name begins with nvshare."""


class ConfigError(Exception):
    """The configuration file cannot be used."""


class Accepted(Protocol):
    """A kind of value."""

    def describe(self) -> str: ...

    def read(self, text: str) -> object | None:
        """None if the text is not accepted."""
        ...


class AbsolutePath(NamedTuple):
    """A directory."""

    def describe(self) -> str:
        return "an absolute path of at most 90 bytes, so that a socket's name fits behind it"

    def read(self, text: str) -> str | None:
        fits = text.startswith("/") and len(os.fsencode(text)) <= 90 and "\0" not in text
        return os.path.normpath(text) if fits else None


class FilePath(NamedTuple):
    """A file, or none."""

    def describe(self) -> str:
        return "an absolute path"

    def read(self, text: str) -> str | None:
        return text if text.startswith("/") and "\0" not in text else None


class Address(NamedTuple):
    """A TCP address to listen on."""

    def describe(self) -> str:
        return "host:port, port or [v6]:port, with a port from 1 to 65535"

    def read(self, text: str) -> str | None:
        match = _ADDRESS.fullmatch(text)
        return text if match and 1 <= int(match["port"]) <= 65_535 else None


class NodeName(NamedTuple):
    """The name of a Kubernetes node."""

    def describe(self) -> str:
        return "a name of lower-case letters, digits, '.' and '-'"

    def read(self, text: str) -> str | None:
        return text if _NODE.fullmatch(text) else None


SWITCH: Final = Choice(("0", "1", "false", "true"))


class Setting(NamedTuple):
    """One variable. ``live``: SIGHUP can change it (rule 4)."""

    variable: str
    default: str
    accepts: Accepted
    meaning: str
    live: bool = False


LOG_SETTINGS: Final = (
    Setting(
        "NVSHARE_LOG",
        "info",
        Choice(("error", "warning", "info", "debug", "off")),
        "least level that is logged",
        live=True,
    ),
    Setting("NVSHARE_LOG_FORMAT", "text", Choice(("text", "json")), "form of a log line", live=True),
    Setting("NVSHARE_DEBUG", "0", SWITCH, "1 is the same as NVSHARE_LOG=debug; 0 is off", live=True),
)
"""Every daemon has these."""


class Value(NamedTuple):
    """One setting: its text, and the layer it comes from."""

    text: str
    source: str  # flag, environment, file, default


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of a daemon. A daemon with typed settings derives its own class."""

    values: Mapping[str, Value]
    warnings: tuple[str, ...]
    fixed: frozenset[str]
    """Variables that only a restart changes."""

    def text(self, variable: str) -> str:
        return self.values[variable].text

    def switched_on(self, variable: str) -> bool:
        return self.text(variable) in ("1", "true")

    def integer(self, variable: str) -> int:
        return int(self.text(variable))

    @property
    def log_level(self) -> str:
        return "debug" if self.switched_on("NVSHARE_DEBUG") else self.text("NVSHARE_LOG")

    @property
    def log_format(self) -> str:
        return self.text("NVSHARE_LOG_FORMAT")


ConfigT = TypeVar("ConfigT", bound=Config)


class SettingTable:
    """The rows of one daemon, and the variables that others read."""

    def __init__(self, rows: Iterable[Setting], read_elsewhere: Iterable[str] = ()) -> None:
        self._rows = {row.variable: row for row in rows}
        self._known = {*self._rows, *read_elsewhere}
        self.fixed = frozenset(row.variable for row in self._rows.values() if not row.live)

    def read_file(self, path: Path) -> dict[str, str]:
        """The file's settings as text, by variable."""
        content = _yaml_mapping(path)
        values: dict[str, str] = {}
        for name, value in content.items():
            variable = f"{PREFIX}{name}".upper()
            if variable not in self._rows or name != str(name).lower():
                known = sorted(row.removeprefix(PREFIX).lower() for row in self._rows)
                hint = did_you_mean(str(name), known) or f"; accepted: {', '.join(known)}"
                raise ConfigError(f"{path}: unknown setting {name!r}{hint}")
            if isinstance(value, bool):
                value = "1" if value else "0"
            if not isinstance(value, str | int):
                accepted = "accepted: text or a whole number"
                raise ConfigError(f"{path}: {name}: {value!r} is not accepted; {accepted}")
            values[variable] = str(value)
        return values

    def load(
        self,
        flags: Mapping[str, str],
        environment: Mapping[str, str],
        file: Path | None,
        defaults: Mapping[str, str],
    ) -> dict[str, Value]:
        """Every setting with its source. ``defaults`` are those that depend on the machine or user.

        Raises SettingError or ConfigError.
        """
        layers = (
            ("file", self.read_file(file) if file else {}),
            ("environment", environment),
            ("flag", flags),
        )
        values: dict[str, Value] = {}
        for variable, row in self._rows.items():
            value = Value(defaults.get(variable, row.default), "default")
            for source, layer in layers:
                text = layer.get(variable, "")
                if not text:
                    continue
                if row.accepts.read(text) is None:
                    raise _not_accepted(row, text, file if source == "file" else None)
                value = Value(text, source)
            values[variable] = value
        return values

    def unknown_variables(self, environment: Mapping[str, str]) -> list[str]:
        """A warning for each variable with our prefix that nothing reads, with the name it resembles."""
        return [
            f"{name} is set, but nvshare has no such variable{_resembles(name, self._known)}"
            for name in sorted(environment)
            if name.startswith(PREFIX) and name not in self._known and not _OF_KUBERNETES.search(name)
        ]


def _yaml_mapping(path: Path) -> Mapping[object, object]:
    try:
        with path.open("rb") as file:
            raw = file.read(_FILE_BYTES_MAX + 1)
        if len(raw) > _FILE_BYTES_MAX:
            raise ConfigError(f"{path} is larger than {_FILE_BYTES_MAX} bytes")
        content = yaml.safe_load(raw)
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:  # bad dates, deep nesting
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a mapping of names to values")
    return content


def _not_accepted(row: Setting, text: str, file: Path | None) -> Exception:
    if file is None:
        return SettingError(row.variable, text, row.accepts.describe())
    name = row.variable.removeprefix(PREFIX).lower()
    return ConfigError(f"{file}: {name}: {text!r} is not accepted; accepted: {row.accepts.describe()}")


def _resembles(name: str, known: Iterable[str]) -> str:
    """Compared without the prefix, which makes all names look alike."""
    found = nearest(name.removeprefix(PREFIX), [one.removeprefix(PREFIX) for one in known])
    return f"; did you mean {PREFIX}{found}?" if found else ""


def needs_restart(old: Config, new: Config) -> list[str]:
    """The variables whose new value a running daemon cannot take."""
    return [
        variable
        for variable in old.values
        if variable in old.fixed and old.text(variable) != new.text(variable)
    ]


def as_far_as_live(old: ConfigT, new: ConfigT) -> ConfigT:
    """The new settings, except that rows which need a restart keep their old values."""
    return replace(new, values={**new.values, **{variable: old.values[variable] for variable in old.fixed}})


def changed_live(old: Config, new: Config) -> list[str]:
    """The variables whose new value a running daemon takes at once."""
    return [v for v in new.values if v not in old.fixed and old.text(v) != new.text(v)]


def print_config(config: Config) -> str:
    """For ``--print-config``: variable, value, source."""
    width = max(len(variable) for variable in config.values)
    return "\n".join(
        f"{variable:<{width}}  {value.text}  ({value.source})" for variable, value in config.values.items()
    )


def markdown_rows(rows: Iterable[Setting]) -> list[str]:
    """The rows of a table in docs/settings.md."""
    lines = []
    for row in rows:
        unit = row.accepts.unit if isinstance(row.accepts, IntegerRange) else "–"
        when = "at once" if row.live else "restart"
        cells = [f"`{row.variable}`", f"`{row.default}`", unit, row.accepts.describe(), when, row.meaning]
        lines.append("| " + " | ".join(cells) + " |")
    return lines
