"""What can be set in the environment: one row for each variable.

1. A value outside its range is an error that names the variable, the value and what is accepted. Nothing is
   clamped or guessed: a daemon that runs with a value nobody wrote is worse than one that stops.
2. A variable with an empty value counts as not set.
3. Variables that tuned what is exact here are read and checked, and a warning says that they have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from nvshare.core.units import ACCEPTED_BYTES

NS_PER_MS: Final = 10**6
NS_PER_SEC: Final = 10**9
BYTES_PER_GIB: Final = 2**30

_WHOLE: Final = re.compile(r"[0-9]{1,19}")


class SettingError(ValueError):
    """A variable has a value that is not accepted."""

    def __init__(self, variable: str, value: str, accepted: str) -> None:
        super().__init__(f"{variable}={value!r} is not accepted; accepted: {accepted}")
        self.variable = variable
        self.value = value
        self.accepted = accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The core's settings, in its own units. The defaults are those of the table."""

    scheduling_mode: Literal["auto", "serial", "concurrent"] = "auto"
    switch_time_mode: Literal["auto", "fixed"] = "auto"
    switch_time_fixed_ns: int = 60 * NS_PER_SEC
    switch_time_multiplier: int = 5
    memory_reserve_percent: int = 10
    default_gpu_memory_bytes: int = 16 * BYTES_PER_GIB
    max_runtime_ns: int = 300 * NS_PER_SEC
    compute_window_ns: int = 2000 * NS_PER_MS
    drop_timeout_ns: int = 60 * NS_PER_SEC
    drain_grace_ns: int = 500 * NS_PER_MS
    unlimited_min_percent: int = 5
    overtake_ns: int = 10 * NS_PER_SEC


class Choice(NamedTuple):
    """One of several words."""

    words: tuple[str, ...]

    def describe(self) -> str:
        return ", ".join(self.words)

    def read(self, text: str) -> str | None:
        return text if text in self.words else None


class IntegerRange(NamedTuple):
    """A whole number in a range, times what makes it the core's unit."""

    least: int
    most: int
    unit: str
    factor: int = 1

    def describe(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def read(self, text: str) -> int | None:
        if not _WHOLE.fullmatch(text) or not self.least <= int(text) <= self.most:
            return None
        return int(text) * self.factor


class SettingRow(NamedTuple):
    """One variable. Without a field it is only checked and warned of."""

    variable: str
    field: str
    default: str
    accepts: Choice | IntegerRange
    meaning: str


_SECONDS_OF_A_DAY: Final = 86_400
_NO_EFFECT: Final = "no effect, because debt is exact"

SETTINGS: Final = (
    SettingRow(
        "NVSHARE_SCHEDULING_MODE",
        "scheduling_mode",
        "auto",
        Choice(("auto", "serial", "concurrent")),
        "which tenants run together: those that fit in memory (auto; concurrent is the same), or of those"
        " without a quota only one at a time (serial)",
    ),
    SettingRow(
        "NVSHARE_SWITCH_TIME_MODE",
        "switch_time_mode",
        "auto",
        Choice(("auto", "fixed")),
        "length of a slice when tenants do not fit in memory together: from their memory, or fixed",
    ),
    SettingRow(
        "NVSHARE_SWITCH_TIME_FIXED",
        "switch_time_fixed_ns",
        "60",
        IntegerRange(1, _SECONDS_OF_A_DAY, "s", NS_PER_SEC),
        "the slice in fixed mode",
    ),
    SettingRow(
        "NVSHARE_SWITCH_TIME_MULTIPLIER",
        "switch_time_multiplier",
        "5",
        IntegerRange(1, 1000, "s/GiB"),
        "the slice in auto mode is the running memory, at least 1 GiB, times this, kept within 10 to 300 s",
    ),
    SettingRow(
        "NVSHARE_MEMORY_RESERVE_PERCENT",
        "memory_reserve_percent",
        "10",
        IntegerRange(0, 90, "%"),
        "part of a GPU's memory that tenants do not get",
    ),
    SettingRow(
        "NVSHARE_DEFAULT_GPU_MEMORY_GB",
        "default_gpu_memory_bytes",
        "16",
        IntegerRange(1, 4096, "GiB", BYTES_PER_GIB),
        "a GPU's memory if the driver does not report it",
    ),
    SettingRow(
        "NVSHARE_MAX_RUNTIME_SEC",
        "max_runtime_ns",
        "300",
        IntegerRange(10, _SECONDS_OF_A_DAY, "s", NS_PER_SEC),
        "longest hold of a GPU while somebody waits, for whatever reason",
    ),
    SettingRow(
        "NVSHARE_COMPUTE_WINDOW_MS",
        "compute_window_ns",
        "2000",
        IntegerRange(500, 20_000, "ms", NS_PER_MS),
        "rolling window of the usage that is reported; quotas do not depend on it",
    ),
    SettingRow(
        "NVSHARE_DROP_TIMEOUT_SEC",
        "drop_timeout_ns",
        "60",
        IntegerRange(1, 3600, "s", NS_PER_SEC),
        "a client that has not drained this long after DROP_LOCK counts as unresponsive; others run if memory"
        " allows. See NVSHARE_ON_UNRESPONSIVE",
    ),
    SettingRow(
        "NVSHARE_DRAIN_GRACE_MS",
        "drain_grace_ns",
        "500",
        IntegerRange(10, 60_000, "ms", NS_PER_MS),
        "minimum time to drain before the next tenant may run beside a late one",
    ),
    SettingRow(
        "NVSHARE_UNLIMITED_MIN_PERCENT",
        "unlimited_min_percent",
        "5",
        IntegerRange(0, 50, "%"),
        "what active tenants without a quota are guaranteed together, however high the quotas of others",
    ),
    SettingRow(
        "NVSHARE_OVERTAKE_SEC",
        "overtake_ns",
        "10",
        IntegerRange(0, 3600, "s", NS_PER_SEC),
        "how long small requests may overtake a big one that waits for memory, if slices are fixed or set by"
        " hand; then room is made. A slice that depends on memory ends when its time is over",
    ),
    SettingRow("NVSHARE_QUOTA_CARRYOVER_PERCENT", "", "25", IntegerRange(0, 100, "%"), _NO_EFFECT),
    SettingRow("NVSHARE_DROP_TAIL_BILLING_PERCENT", "", "70", IntegerRange(0, 100, "%"), _NO_EFFECT),
    SettingRow("NVSHARE_QUOTA_SAMPLE_INTERVAL_MS", "", "50", IntegerRange(10, 1000, "ms"), _NO_EFFECT),
)


class LibraryRow(NamedTuple):
    """One variable of the library in CUDA programs, which is read there (native/interposer/settings.c)."""

    variable: str
    default: str
    accepted: str
    meaning: str


_SWITCH: Final = Choice(("0", "1", "false", "true")).describe()

LIBRARY_SETTINGS: Final = (
    LibraryRow(
        "NVSHARE_GPU_MEMORY_LIMIT",
        "none",
        ACCEPTED_BYTES,
        "memory limit of the program's pod on each GPU; the lower of this and the daemon's holds, and what"
        " `nvshare ctl` sets overrides both",
    ),
    LibraryRow(
        "NVSHARE_ENABLE_SINGLE_OVERSUB", "0", _SWITCH, "1: one process may allocate more than the card has"
    ),
    LibraryRow(
        "NVSHARE_MANAGED",
        "1",
        _SWITCH,
        "0: allocations stay native, so that IPC, peer and network paths work; they must then fit beside"
        " those of others",
    ),
    LibraryRow("NVSHARE_DISABLE", "0", _SWITCH, "1: the library does nothing"),
)


def read_settings(environment: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """The settings, and one warning for each variable that is set but does nothing."""
    values: dict[str, int | str] = {}
    warnings: list[str] = []
    for row in SETTINGS:
        text = environment.get(row.variable, "")
        if not text:
            continue
        value = row.accepts.read(text)
        if value is None:
            raise SettingError(row.variable, text, row.accepts.describe())
        if row.field:
            values[row.field] = value
        else:
            warnings.append(f"{row.variable}={text} has {row.meaning}")
    return Settings(**values), warnings  # type: ignore[arg-type]


def library_section() -> list[str]:
    """What the library reads, for docs/settings.md."""
    lines = [
        "",
        "## Of the library in CUDA programs",
        "",
        "A value that is not accepted is reported in one line on standard error and counts as not set; the",
        "program runs. The library also reads `NVSHARE_SOCK_DIR` and `NVSHARE_DEBUG`, the daemon's own.",
        "",
        "| variable | default | accepted | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for row in LIBRARY_SETTINGS:
        lines.append(f"| `{row.variable}` | `{row.default}` | {row.accepted} | {row.meaning} |")
    return lines


def settings_page() -> str:
    """docs/settings.md, made from the table. Pure: a tool writes it."""
    lines = [
        "# Settings",
        "",
        "Generated from the table in `src/nvshare/core/settings.py`; `make docs` writes it. Do not edit.",
        "",
        "A value that is not accepted ends the program with exit code 2 and a message that names the",
        "variable, the value and what is accepted. A variable with an empty value counts as not set. An",
        "unknown one that begins with `NVSHARE_` gets a warning, with the name that it resembles.",
        "",
        "| variable | default | unit | accepted | meaning |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in SETTINGS:
        unit = row.accepts.unit if isinstance(row.accepts, IntegerRange) else "–"
        cells = [f"`{row.variable}`", f"`{row.default}`", unit, row.accepts.describe(), row.meaning]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
