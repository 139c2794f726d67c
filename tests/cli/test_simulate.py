"""`nvshare simulate` as its user calls it."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from nvshare.cli import main

SHORT = ["--hours", "0.005"]


def simulate(*words: str) -> Result:
    return CliRunner().invoke(main, ["simulate", *words])


def test_the_table_shows_asked_and_got() -> None:
    result = simulate("30+60", *SHORT)
    assert result.exit_code == 0
    row = next(line for line in result.output.splitlines() if "q30-0" in line)
    cells = re.split(" {2,}", row)
    assert cells[2] == "30"
    assert float(cells[4]) == pytest.approx(30, abs=0.5)


def test_json_carries_what_scripts_need() -> None:
    tenant = json.loads(simulate("30+60", *SHORT, "--json").stdout)["tenants"][0]
    for key in ("asked_percent", "got_percent", "worst_10s_points", "longest_gap_ms"):
        assert isinstance(tenant[key], int | float), key
    assert tenant["asked_percent"] == 30
    assert tenant["worst_60s_points"] is None, "no minute is in 18 seconds"


def test_a_quota_that_changes_is_shown_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    table = simulate("quota-change", "--plot", str(path)).output
    row = next(line for line in table.splitlines() if line.startswith("changes "))
    _, _, asked, due, got, error, *_ = re.split(" {2,}", row)
    assert asked == "30 → 60 → 20"
    assert float(due) == pytest.approx((30 + 60 + 20) / 3, abs=0.01)
    assert float(error) == pytest.approx(float(got) - float(due), abs=0.02)
    drawn = [element.text or "" for element in ElementTree.parse(path).getroot().iter()]
    assert "changes: 60 %" in drawn
    assert "changes: 20 %" in drawn
    assert any("asked 30 % → 60 % → 20 %" in text for text in drawn)
    [tenant] = [
        row
        for row in json.loads(simulate("quota-change", "--json").stdout)["tenants"]
        if row["name"] == "changes"
    ]
    assert tenant["quota_changes"] == [[40.0, 60], [80.0, 20]]


PAGE = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()


@pytest.mark.parametrize("words", re.findall(r"\| `nvshare simulate ([^`]+)` \|", PAGE))
def test_the_page_says_what_the_command_prints(words: str) -> None:
    """Every figure of the row with decimals, and its waits, are among those of the run."""
    [row] = [line for line in PAGE.splitlines() if f"`nvshare simulate {words}`" in line]
    figure = row.split("|")[2]
    run = json.loads(simulate(*words.split(), "--json").stdout)
    shown = {f"{tenant['got_percent']:.1f}" for tenant in run["tenants"]}
    shown |= {f"{gpu[f'{what}_percent']:.1f}" for gpu in run["gpus"] for what in ("idle", "swap")}
    shown |= {f"{tenant['wait_p99_ms']:.0f} ms" for tenant in run["tenants"]}
    assert set(re.findall(r"[0-9]+\.[0-9]|[0-9]+ ms(?= at p99)", figure)) <= shown


def test_the_table_says_how_long_in_whole_units() -> None:
    assert "1 minute 40 seconds simulated" in simulate("50", "--hours", "0.0277778").output


@pytest.mark.parametrize("name", ["25+75", "collectives", "churn", "restarts"])
def test_same_seed_same_bytes(name: str, tmp_path: Path) -> None:
    first = simulate(name, *SHORT, "--json", "--seed", "7", "--plot", str(tmp_path / "1.svg"))
    second = simulate(name, *SHORT, "--json", "--seed", "7", "--plot", str(tmp_path / "2.svg"))
    other = simulate(name, *SHORT, "--json", "--seed", "8")
    assert first.stdout == second.stdout
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()
    assert first.stdout != other.stdout


def test_the_plot_has_a_bar_for_every_turn_close_up(tmp_path: Path) -> None:
    path = tmp_path / "plot.svg"
    result = simulate("30+60", *SHORT, "--plot", str(path))
    assert str(path) in result.output
    root = ElementTree.parse(path).getroot()
    bars = [
        element for element in root.iter("{http://www.w3.org/2000/svg}rect") if element.get("height") == "12"
    ]
    assert len(bars) > 50, "two seconds of 20 ms turns"
    assert {"#4477aa", "#ee6677"} <= {element.get("fill") for element in bars}


def test_a_plot_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    full = tmp_path / "full.svg"
    full.symlink_to("/dev/full")
    result = simulate("30+60", *SHORT, "--plot", str(full))
    assert result.exit_code == 2
    assert f"--plot {full}: No space left on device" in result.output


def test_kernels_and_handover_can_be_chosen() -> None:
    slow = json.loads(simulate("25+75", *SHORT, "--json", "--handover-ms", "5").stdout)
    assert slow["handover_ms"] == 5
    assert slow["gpus"][0]["busy_percent"] < 97


def test_list_names_every_preset() -> None:
    result = simulate("--list")
    assert result.exit_code == 0
    for name in ("30+60", "oversubscribed", "half-idle", "bursts", "collectives", "churn", "day"):
        assert any(line.startswith(f"{name} ") for line in result.output.splitlines()), name


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "which scenario"),
        (("nonsense",), "nonsense"),
        (("missing.toml",), "missing.toml"),
        (("30+60", "--kernel-ms", "soon"), "mixed"),
        (("30+60", "--hours", "0"), "0"),
        (("30+60", "--plot", "no/such/folder/x.svg"), "no/such/folder"),
        (("30+60", "--plot", "x.png"), "ends in .svg"),
    ],
)
def test_a_mistake_exits_with_2_and_a_reason(words: tuple[str, ...], named: str) -> None:
    result = simulate(*words)
    assert result.exit_code == 2
    assert named in result.output


def test_a_bad_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('[[tenant]]\nname = "a"\ncore = 0\n')
    result = simulate(str(path))
    assert result.exit_code == 2
    assert f"{path}:3" in result.output.replace("\n", "")
