"""Mistakes in a scenario are named with their line, their value and what is accepted."""

from __future__ import annotations

import pytest

from nvshare.sim.scenario_file import MIXES, ScenarioError, load, parse, presets

GOOD = """description = "x"
seconds = 1
gpus = 2

[[tenant]]
name = "a"
core = 30

[[tenant]]
name = "b"
gpu = [0, 1]
kernel_ms = [25, 50]
"""


def test_a_good_file() -> None:
    scenario = parse(GOOD, "x.toml", "x")
    assert [tenant.core_percent for tenant in scenario.tenants] == [30, 100]
    assert scenario.tenants[1].gpus == (0, 1)
    assert scenario.tenants[1].program.kernel_ns == (25_000_000, 50_000_000)


@pytest.mark.parametrize(
    ("old", "new", "line", "value", "accepted"),
    [
        ("core = 30", "core = 300", 7, "300", "1..100"),
        ("core = 30", 'core = "x"', 7, "'x'", "1..100"),
        ("seconds = 1", "seconds = -1", 2, "-1", "0.001.."),
        ("gpus = 2", "gpus = 65", 3, "65", "1..64"),
        ("gpu = [0, 1]", "gpu = 2", 11, "2", "0..1"),
        ("gpu = [0, 1]", "gpu = [0, 0]", 11, "[0, 0]", "0..1"),
        ("kernel_ms = [25, 50]", "kernel_ms = [50, 25]", 12, "[50, 25]", "25-50"),
        ("core = 30", 'policy = "greedy"', 7, "'greedy'", "cap, share"),
        ("core = 30", 'memory = "12 parsecs"', 7, "12 parsecs", "Gi"),
        ("core = 30", "corn = 30", 7, "unknown key 'corn'", "did you mean 'core'?"),
        ("core = 30", "xyz = 30", 7, "unknown key 'xyz'", "known here: arrive_s"),
        ("core = 30", 'memory = "4gb"', 7, "'4gb'", "did you mean 4Gi (binary) or 4G (decimal)?"),
        ("core = 30", "memory = 4", 7, "memory = 4 ", "did you mean 4Gi?"),
        ('name = "b"', 'name = "a"', 10, "'a'", "no other tenant"),
        ("core = 30", 'program = "paced"', 7, "'paced'", "host_ms"),
        ("core = 30", "leave_s = 0.5\narrive_s = 1", 7, "0.5", "after arrive_s"),
    ],
)
def test_a_mistake_is_named(old: str, new: str, line: int, value: str, accepted: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        parse(GOOD.replace(old, new), "x.toml", "x")
    text = str(caught.value)
    assert text.startswith(f"x.toml:{line}: ")
    assert value in text
    assert accepted in text
    assert text.count("accepted:") <= 1


@pytest.mark.parametrize(
    ("addition", "words"),
    [
        ("[[fault]]\nkind = 'storm'\nat_s = 1\n", "death, stop"),
        ("[[fault]]\nkind = 'stop'\nat_s = 1\ntenant = 'nobody'\nfor_s = 1\n", "one of a, b"),
        ("[[fault]]\nkind = 'stop'\nat_s = 1\ntenant = 'a'\n", "more than 0"),
        ("[[fault]]\nkind = 'death'\ntenant = 'a'\n", "needs 'at_s'"),
        ("[settings]\nNVSHARE_MEMORY_RESERVE_PERCENT = 99\n", "99"),
        ("[settings]\nHOME = 1\n", "unknown key 'HOME'; known here: NVSHARE_"),
        (
            "[settings]\nNVSHARE_UNLIMITED_MIN_PERCNT = 1\n",
            r"^x.toml:15: unknown key 'NVSHARE_UNLIMITED_MIN_PERCNT'; did you mean 'NVSHARE_UNLIMITED_",
        ),
        ("[[tenant]]\ncore = 1\n", "needs 'name'"),
        ("[[tenant\n", "not TOML"),
    ],
)
def test_more_mistakes(addition: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        parse(GOOD + "\n" + addition, "x.toml", "x")


def test_no_tenants_is_a_mistake() -> None:
    with pytest.raises(ScenarioError, match=r"1\.\.1000"):
        parse("seconds = 1\n", "x.toml", "x")


def test_every_preset_loads_and_says_what_it_shows() -> None:
    named = presets()
    assert set(MIXES) < set(named)
    asked_for = {"oversubscribed", "half-idle", "bursts", "collectives", "churn", "day", "demo"}
    assert asked_for < set(named)
    for name, description in named.items():
        assert load(name).tenants
        assert len(description) > 10


@pytest.mark.parametrize("name", ["nonsense", "30+0", "30+101", "missing.toml", "30+", ""])
def test_an_unknown_preset_is_named(name: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load(name)
    assert repr(name) in str(caught.value) or name in str(caught.value)
