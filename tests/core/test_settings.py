"""Every variable: its default, its ends, what lies beyond them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, fields

import pytest

from nvshare.core.settings import (
    SETTINGS,
    Choice,
    IntegerRange,
    SettingError,
    SettingRow,
    Settings,
    read_settings,
)

ROWS = pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.variable)
WITHOUT_EFFECT = {
    "NVSHARE_QUOTA_CARRYOVER_PERCENT",
    "NVSHARE_DROP_TAIL_BILLING_PERCENT",
    "NVSHARE_QUOTA_SAMPLE_INTERVAL_MS",
}

RANGES = {
    "NVSHARE_SWITCH_TIME_FIXED": (1, 86_400),
    "NVSHARE_SWITCH_TIME_MULTIPLIER": (1, 1000),
    "NVSHARE_MEMORY_RESERVE_PERCENT": (0, 90),
    "NVSHARE_DEFAULT_GPU_MEMORY_GB": (1, 4096),
    "NVSHARE_MAX_RUNTIME_SEC": (10, 86_400),
    "NVSHARE_COMPUTE_WINDOW_MS": (500, 20_000),
    "NVSHARE_DROP_TIMEOUT_SEC": (1, 3600),
    "NVSHARE_DRAIN_GRACE_MS": (10, 60_000),
    "NVSHARE_UNLIMITED_MIN_PERCENT": (0, 50),
    "NVSHARE_OVERTAKE_SEC": (0, 3600),
    "NVSHARE_QUOTA_CARRYOVER_PERCENT": (0, 100),
    "NVSHARE_DROP_TAIL_BILLING_PERCENT": (0, 100),
    "NVSHARE_QUOTA_SAMPLE_INTERVAL_MS": (10, 1000),
}


def test_ranges() -> None:
    whole = {row.variable: row.accepts for row in SETTINGS if isinstance(row.accepts, IntegerRange)}
    assert {variable: (accepts.least, accepts.most) for variable, accepts in whole.items()} == RANGES


def test_defaults_in_the_core_s_units() -> None:
    assert asdict(read_settings({})[0]) == {
        "scheduling_mode": "auto",
        "switch_time_mode": "auto",
        "switch_time_fixed_ns": 60_000_000_000,
        "switch_time_multiplier": 5,
        "memory_reserve_percent": 10,
        "default_gpu_memory_bytes": 17_179_869_184,
        "max_runtime_ns": 300_000_000_000,
        "compute_window_ns": 2_000_000_000,
        "drop_timeout_ns": 60_000_000_000,
        "drain_grace_ns": 500_000_000,
        "unlimited_min_percent": 5,
        "overtake_ns": 10_000_000_000,
    }


@ROWS
def test_the_default_of_the_table_is_the_default_of_the_settings(row: SettingRow) -> None:
    assert read_settings({row.variable: row.default})[0] == Settings()


@ROWS
def test_the_ends_are_accepted_and_what_lies_beyond_is_not(row: SettingRow) -> None:
    if isinstance(row.accepts, Choice):
        good, bad = list(row.accepts.words), [row.accepts.words[0].upper(), "none"]
    else:
        good = [str(row.accepts.least), str(row.accepts.most)]
        bad = [str(row.accepts.least - 1), str(row.accepts.most + 1)]
    for text in good:
        changed = asdict(read_settings({row.variable: text})[0])
        if row.field and isinstance(row.accepts, IntegerRange):
            assert changed[row.field] == int(text) * row.accepts.factor
        elif row.field:
            assert changed[row.field] == text
    for text in bad:
        with pytest.raises(SettingError) as failure:
            read_settings({row.variable: text})
        assert (
            str(failure.value)
            == f"{row.variable}={text!r} is not accepted; accepted: {row.accepts.describe()}"
        )


@pytest.mark.parametrize("text", ["nan", "1.5", " 60", "60s", "0x3c", "٦٠", "-0", "6_0", "9" * 30])
def test_what_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match="NVSHARE_SWITCH_TIME_FIXED"):
        read_settings({"NVSHARE_SWITCH_TIME_FIXED": text})


def test_a_slice_of_nothing_is_refused() -> None:
    with pytest.raises(SettingError, match="a whole number from 1 to 86400"):
        read_settings({"NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": "0"})


def test_each_variable_without_effect_is_warned_of_once_when_it_is_set() -> None:
    assert {row.variable for row in SETTINGS if not row.field} == WITHOUT_EFFECT
    assert read_settings({})[1] == []
    settings, warnings = read_settings(dict.fromkeys(WITHOUT_EFFECT, "20"))
    assert settings == Settings()
    assert sorted(warnings) == sorted(
        f"{variable}=20 has no effect, because debt is exact" for variable in WITHOUT_EFFECT
    )


def test_nothing_counts_as_not_set_and_strangers_are_left_alone() -> None:
    environment = {"NVSHARE_MAX_RUNTIME_SEC": "", "NVSHARE_SOMETHING_ELSE": "x", "HOME": "/root"}
    assert read_settings(environment) == (Settings(), [])


def test_the_table_and_the_settings_name_the_same_fields() -> None:
    assert [row.field for row in SETTINGS if row.field] == [field.name for field in fields(Settings)]


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Settings().overtake_ns = 1  # type: ignore[misc]
