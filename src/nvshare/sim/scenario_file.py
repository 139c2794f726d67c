"""Scenarios from TOML: each mistake named with its line, its value and what is accepted."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, Final

from nvshare.core.settings import SETTINGS, SettingError, read_settings
from nvshare.core.spelling import did_you_mean
from nvshare.core.units import UnitError, parse_memory
from nvshare.sim.scenario import (
    KERNEL_CLASSES,
    MS_NS,
    SECOND_NS,
    FaultSpec,
    Program,
    Scenario,
    TenantSpec,
    mix,
)

MIXES: Final = ("25", "50", "75", "30+60", "25+75", "10+20+30+40", "75+75", "30+u", "25+75+u")
TENANTS_MAX: Final = 1000
_MIX: Final = re.compile(r"(?:[0-9]{1,3}|u)(?:\+(?:[0-9]{1,3}|u))*")
_MISSING: Final = object()


class ScenarioError(ValueError):
    """A scenario cannot be read."""


def presets() -> dict[str, str]:
    """Name -> what it shows."""
    named = {name: mix(name).description for name in MIXES}
    for name in sorted(entry.name.removesuffix(".toml") for entry in _preset_folder().iterdir()):
        named[name] = load_preset(name).description
    return named


def load(name: str) -> Scenario:
    """A file, a preset, or a mix such as 30+60 or 25+75+u."""
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"{name}: cannot be read: {error}") from None
        return parse(text, name, Path(name).stem)
    if _MIX.fullmatch(name):
        try:
            return mix(name)
        except ValueError as error:
            raise ScenarioError(f"preset {name!r}: {error}") from None
    if (_preset_folder() / f"{name}.toml").is_file():
        return load_preset(name)
    known = ", ".join(presets())
    raise ScenarioError(
        f"no preset {name!r}; accepted: a file that ends in .toml, quotas such as 30+60 or 25+75+u "
        f"(u: unlimited), or one of {known}"
    )


def load_preset(name: str) -> Scenario:
    file = f"{name}.toml"
    return parse((_preset_folder() / file).read_text(encoding="utf-8"), file, name)


def _preset_folder() -> Any:
    return resources.files("nvshare.sim") / "presets"


def parse(text: str, file: str, name: str) -> Scenario:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{file}: not TOML: {error}") from None
    top = _Table(document, text, file, "", 0)
    gpus = top.whole("gpus", 1, 1, 64)
    tenants = tuple(
        _tenant(_Table(entry, text, file, "tenant", index), gpus)
        for index, entry in enumerate(top.tables("tenant"))
    )
    names = {tenant.name for tenant in tenants}
    if not tenants or len(tenants) > TENANTS_MAX:
        raise ScenarioError(f"{file}: {len(tenants)} [[tenant]] entries; accepted: 1..{TENANTS_MAX}")
    for index, tenant in enumerate(tenants):
        if tenant.name in {other.name for other in tenants[:index]}:
            table = _Table(document["tenant"][index], text, file, "tenant", index)
            raise table.error("name", tenant.name, "a name no other tenant has")
    faults = tuple(
        _fault(_Table(entry, text, file, "fault", index), names)
        for index, entry in enumerate(top.tables("fault"))
    )
    scenario = Scenario(
        name=name,
        description=top.text("description", ""),
        tenants=tenants,
        gpus=gpus,
        gpu_memory_bytes=top.size("gpu_memory", "16Gi"),
        duration_ns=top.duration("seconds", 120, SECOND_NS, least=0.001),
        handover_ns=top.duration("handover_ms", 0.4, MS_NS),
        faults=faults,
        settings=_settings(top),
    )
    top.finish()
    return scenario


def _settings(top: _Table) -> Any:
    entries = top.take("settings", {})
    if not isinstance(entries, dict):
        raise top.error("settings", entries, "a table of NVSHARE_... = value")
    known = [row.variable for row in SETTINGS]
    table = _Table(entries, top.source, top.file, "settings", 0)
    for key in entries:
        if key not in known:
            raise table.unknown(key, known)
    try:
        settings, _ = read_settings({key: str(value) for key, value in entries.items()})
    except SettingError as error:
        raise table.error(error.variable, error.value, error.accepted) from None
    return settings


def _tenant(table: _Table, gpus: int) -> TenantSpec:
    spec = TenantSpec(
        name=table.text("name", _MISSING),
        core_percent=table.whole("core", 100, 1, 100),
        share=table.choice("policy", "cap", ("cap", "share")) == "share",
        gpus=_gpus(table, gpus),
        memory_bytes=table.size("memory", "1Gi"),
        processes=table.whole("processes", 1, 1, 64),
        protocol=table.whole("protocol", 3, 1, 3),
        arrive_ns=table.duration("arrive_s", 0, SECOND_NS),
        leave_ns=table.duration("leave_s", 0, SECOND_NS),
        every_ns=table.duration("every_s", 0, SECOND_NS),
        program=_program(table),
    )
    if spec.leave_ns and spec.leave_ns <= spec.arrive_ns:
        raise table.error("leave_s", spec.leave_ns / SECOND_NS, "a time after arrive_s")
    if spec.every_ns and not 0 < spec.leave_ns - spec.arrive_ns < spec.every_ns:
        raise table.error("every_s", spec.every_ns / SECOND_NS, "longer than from arrive_s to leave_s")
    table.finish()
    return spec


def _gpus(table: _Table, gpus: int) -> tuple[int, ...]:
    value = table.take("gpu", 0)
    listed = value if isinstance(value, list) else [value]
    good = all(isinstance(index, int) and 0 <= index < gpus for index in listed)
    if not listed or not good or len(set(listed)) != len(listed):
        raise table.error("gpu", value, f"a number within 0..{gpus - 1}, or a list of such")
    return tuple(listed)


def _program(table: _Table) -> Program:
    kind = table.choice("program", "backlogged", ("backlogged", "paced", "collective"))
    program = Program(
        kind=kind,
        kernel_ns=_kernel(table),
        batch_ns=table.duration("batch_ms", 0, MS_NS),
        host_ns=table.duration("host_ms", 0, MS_NS),
        period_ns=table.duration("period_ms", 0, MS_NS),
        in_flight_ns=table.duration("in_flight_ms", 20, MS_NS),
        busy_ns=table.duration("busy_s", 0, SECOND_NS),
        idle_ns=table.duration("idle_s", 0, SECOND_NS),
    )
    if bool(program.busy_ns) != bool(program.idle_ns):
        raise table.error("busy_s", program.busy_ns / SECOND_NS, "busy_s and idle_s together, or neither")
    if kind == "paced" and not program.host_ns and not program.period_ns:
        raise table.error("program", kind, "paced with host_ms or period_ms")
    return program


def _kernel(table: _Table) -> tuple[int, int]:
    value = table.take("kernel_ms", 5)
    try:
        return parse_kernel(value)
    except ScenarioError as error:
        raise table.error("kernel_ms", value, str(error)) from None


def parse_kernel(value: Any) -> tuple[int, int]:
    """5, 0.1, [25, 50], "25-50" or "mixed"."""
    if isinstance(value, str):
        if value in KERNEL_CLASSES:
            return KERNEL_CLASSES[value]
        try:
            value = [float(part) for part in value.split("-")]
        except ValueError:
            value = []
    listed = value if isinstance(value, list) else [value]
    numbers = all(isinstance(part, int | float) and not isinstance(part, bool) for part in listed)
    if len(listed) not in (1, 2) or not numbers or not 0.001 <= listed[0] <= listed[-1] <= 100_000:
        raise ScenarioError("milliseconds within 0.001..100000, a range such as 25-50, or mixed")
    return round(listed[0] * MS_NS), round(listed[-1] * MS_NS)


_FAULTS: Final = ("death", "stop", "ignore_drop", "daemon_restart", "quota")


def _fault(table: _Table, names: set[str]) -> FaultSpec:
    kind = table.choice("kind", _MISSING, _FAULTS)
    tenant = table.text("tenant", "")
    if kind != "daemon_restart" and tenant not in names:
        raise table.error("tenant", tenant, f"one of {', '.join(sorted(names))}")
    spec = FaultSpec(
        kind=kind,
        at_ns=table.duration("at_s", _MISSING, SECOND_NS),
        tenant=tenant,
        for_ns=table.duration("for_s", 0, SECOND_NS),
        core_percent=table.whole("core", 100, 1, 100),
        every_ns=table.duration("every_s", 0, SECOND_NS),
    )
    if kind in ("stop", "ignore_drop", "daemon_restart") and not spec.for_ns:
        raise table.error("for_s", 0, "how long it lasts, more than 0")
    if spec.every_ns and spec.every_ns <= spec.for_ns:
        raise table.error("every_s", spec.every_ns / SECOND_NS, "longer than for_s")
    table.finish()
    return spec


class _Table:
    """One TOML table, read key by key; what is left over at the end is a mistake."""

    def __init__(self, entries: Mapping[str, Any], text: str, file: str, header: str, index: int) -> None:
        self._entries = dict(entries)
        self.source = text
        self.file = file
        self._header = header
        self._index = index
        self._known: list[str] = []

    def take(self, key: str, default: Any) -> Any:
        self._known.append(key)
        value = self._entries.pop(key, default)
        if value is _MISSING:
            raise ScenarioError(f"{self.file}:{self._line('')}: [[{self._header}]] needs {key!r}")
        return value

    def tables(self, key: str) -> list[Mapping[str, Any]]:
        value = self.take(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            raise self.error(key, value, f"[[{key}]] tables")
        return value

    def text(self, key: str, default: Any) -> str:
        value = self.take(key, default)
        if not isinstance(value, str) or len(value) > 253:
            raise self.error(key, value, "a text of at most 253 characters")
        return value

    def choice(self, key: str, default: Any, accepted: tuple[str, ...]) -> str:
        value = self.take(key, default)
        if value not in accepted:
            raise self.error(key, value, ", ".join(accepted))
        return str(value)

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        value = self.take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(key, value, f"a whole number within {least}..{most}")
        return value

    def size(self, key: str, default: str) -> int:
        value = self.take(key, default)
        try:
            return parse_memory(str(value))
        except UnitError as error:
            raise self.error(key, value, error.accepted) from None

    def duration(self, key: str, default: Any, unit_ns: int, least: float = 0) -> int:
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= 1e7:
            raise self.error(key, value, f"a number within {least:g}..10000000")
        return round(value * unit_ns)

    def finish(self) -> None:
        for key in self._entries:
            raise self.unknown(key, self._known)

    def unknown(self, key: str, known: Iterable[str]) -> ScenarioError:
        hint = did_you_mean(key, known) or f"; known here: {', '.join(sorted(known))}"
        return ScenarioError(f"{self.file}:{self._line(key)}: unknown key {key!r}{hint}")

    def error(self, key: str, value: Any, accepted: str) -> ScenarioError:
        where = f"{self.file}:{self._line(key)}"
        return ScenarioError(f"{where}: {key} = {value!r} is not accepted; accepted: {accepted}")

    def _line(self, key: str) -> int:
        """The line a key of this table stands on; of the table itself for no key."""
        seen = -1
        inside = not self._header
        for number, line in enumerate(self.source.splitlines(), start=1):
            stripped = line.strip()
            if stripped.startswith("["):
                if stripped.startswith((f"[[{self._header}]]", f"[{self._header}]")):
                    seen += 1
                    inside = seen == self._index
                    if inside and not key:
                        return number
                else:
                    inside = not self._header
            elif inside and re.match(rf"[\"']?{re.escape(key)}[\"']?\s*=", stripped):
                return number
        return 1
