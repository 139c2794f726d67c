"""``nvshare sim``, card specifications, and what they answer to mistakes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from nvshare.cli import main
from nvshare.sim.gpu import SimulatedNode, SimulatorError


def call(directory: Path, *arguments: str) -> Result:
    return CliRunner(env={"NVSHARE_SIM": None}).invoke(main, ["sim", "--dir", str(directory), *arguments])


def test_status_as_table_and_json(sim: Any) -> None:
    child = sim.workload("w2")
    sim.wait_for_launches(1, 10)
    text = call(sim.directory, "status")
    assert text.exit_code == 0
    assert "Tesla T4" in text.output
    assert str(child.pid) in text.output
    state = json.loads(call(sim.directory, "status", "--json").output)
    (card,) = state["cards"]
    (row,) = card["processes"]
    assert row["pid"] == child.pid
    assert row["used_bytes"] == row["context_bytes"] + row["device_bytes"] == card["used_bytes"]
    assert row["device_bytes"] == 4 * 14000 * 14000 * 4


def test_reset_ends_contexts_and_keeps_uuids(sim: Any) -> None:
    child = sim.workload("w2")
    sim.wait_for_launches(1, 10)
    before = sim.card()
    assert call(sim.directory, "fault", "ecc-corrected", "0", "5").exit_code == 0
    assert call(sim.directory, "reset").exit_code == 0
    after = sim.card()
    assert (after.uuid, after.used_bytes, after.busy_ns, after.ecc_corrected) == (before.uuid, 0, 0, 0)
    _, errors = child.communicate(timeout=600)
    assert child.returncode == 1
    assert "CUDA_ERROR_CONTEXT_IS_DESTROYED" in errors


@pytest.mark.parametrize(
    ("arguments", "value", "accepted"),
    [
        (("fault", "nonsense"), "nonsense", "slow-pcie"),
        (("fault", "lost", "7"), "7", "0..0"),
        (("fault", "xid", "0", "many"), "many", "1..999"),
        (("fault", "hang", "printf"), "printf", "cuLaunchKernel"),
        (("fault", "slow-pcie", "0", "0"), "0", "1..1000"),
    ],
)
def test_bad_faults(sim: Any, arguments: tuple[str, ...], value: str, accepted: str) -> None:
    result = call(sim.directory, *arguments)
    assert result.exit_code == 2
    assert f"'{value}'" in result.output
    assert accepted in result.output


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("h100:2", ["'h100'", "t4 and a800"]),
        ("t4:none", ["'none'", "preset:number"]),
        ("t4:0", ["0 cards", "1 to 64"]),
        ("a800:65", ["65 cards", "1 to 64"]),
        ("missing.toml", ["missing.toml", "No such file"]),
    ],
)
def test_bad_specifications(tmp_path: Path, spec: str, words: list[str]) -> None:
    result = CliRunner().invoke(main, ["sim", "--dir", str(tmp_path / "node"), "--cards", spec, "status"])
    assert result.exit_code == 2
    for word in words:
        assert word in result.output


def test_looking_makes_and_changes_nothing(make_sim: Any, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    result = call(nowhere, "status")
    assert result.exit_code == 2
    assert f"no simulated GPUs in {nowhere}" in result.output
    assert "nvshare up --sim" in result.output
    assert not nowhere.exists()
    sim = make_sim("t4:2")
    for verb in (("status",), ("reset",), ("fault", "lost", "0")):
        result = call(sim.directory, "--cards", "a800:1", *verb)
        assert result.exit_code == 2
        assert f"the simulated GPUs in {sim.directory} are t4:2" in result.output.replace("\n", " ")
    assert SimulatedNode.find(sim.directory).status().spec == "t4:2"
    assert not any(card.lost for card in sim.node.status().cards)


def test_a_fault_can_be_there_before_the_first_program(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    result = call(directory, "--cards", "t4:1", "fault", "lost", "0")
    assert result.exit_code == 0
    assert f"lost 0: done, on the simulated GPUs in {directory}" in result.output
    assert SimulatedNode.find(directory).status().cards[0].lost == 1


@pytest.mark.parametrize("cards", ["bogus", ""])
def test_an_environment_for_cards_that_do_not_exist(cards: str) -> None:
    result = CliRunner().invoke(main, ["sim", "--cards", cards, "env"])
    assert result.exit_code == 2
    assert f"--cards: unknown card '{cards}'" in result.output
    assert "export" not in result.output


OWN = """
# A small card for tests, and a T4 with slow memory.
[[card]]
name = "Little"
memory_bytes = 1_073_741_824
bandwidth_bytes_per_s = 100_000_000_000
pcie_bytes_per_s = 10_000_000_000
slice_ns = 1_000_000
count = 2

[[card]]
preset = "t4"
bandwidth_bytes_per_s = 120_000_000_000
"""


def test_own_cards(make_sim: Any, tmp_path: Path) -> None:
    path = tmp_path / "cards.toml"
    path.write_text(OWN)
    sim = make_sim(str(path))
    cards = sim.node.status().cards
    assert [card.name for card in cards] == ["Little", "Little", "Tesla T4"]
    assert (cards[0].total_bytes, cards[0].slice_ns) == (1 << 30, 1_000_000)
    assert (cards[2].total_bytes, cards[2].bandwidth_bytes_per_s) == (16 << 30, 120_000_000_000)
    report = sim.script("bindings.py", CUDA_VISIBLE_DEVICES="2")
    assert report["add_ms"] == pytest.approx(2 * 9.8, rel=0.01)
    assert len({card.uuid for card in cards}) == 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["no [[card]]"]),
        ("[[card]]\nspeed = 3\n", ["line 2", "speed"]),
        ("[[card]]\nmemory_bytes = lots\n", ["line 2", "memory_bytes = lots"]),
        ('[[card]]\npreset = "v100"\n', ["line 2", '"v100"', '"t4" or "a800"']),
        ("[[card]]\nmemory_bytes = 1\n", ["bandwidth_bytes_per_s"]),
        ("name = 1\n", ["line 1", "[[card]]"]),
    ],
)
def test_bad_card_files(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "cards.toml"
    path.write_text(text)
    with pytest.raises(SimulatorError) as caught:
        SimulatedNode(tmp_path / "node", str(path))
    for word in words:
        assert word in str(caught.value)


def test_cards_cannot_change_under_a_running_program(sim: Any) -> None:
    child = sim.workload("w2")
    sim.wait_for_launches(1, 1)
    with pytest.raises(SimulatorError, match="in use with NVSHARE_SIM=t4:1"):
        SimulatedNode(sim.directory, "a800:1")
    uuid = sim.card().uuid
    sim.end(child)
    changed = SimulatedNode(sim.directory, "t4:2")
    assert changed.status().cards[0].uuid == uuid
    changed.close()


def test_a_directory_name_that_is_too_long(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 100] * 5)
    with pytest.raises(SimulatorError, match="longer than 480 characters"):
        SimulatedNode(deep, "t4:1")


def test_a_missing_library(tmp_path: Path) -> None:
    runner = CliRunner(env={"NVSHARE_SIM_LIB": str(tmp_path)})
    result = runner.invoke(main, ["sim", "--dir", str(tmp_path / "node"), "status"])
    assert result.exit_code == 2
    assert str(tmp_path) in result.output
    assert "make -C native/simgpu" in result.output


def test_environment_for_programs(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["sim", "--dir", str(tmp_path), "--cards", "t4:1", "env"])
    check = 'test -e "${LD_LIBRARY_PATH%%:*}/libcuda.so.1"\necho "$NVSHARE_SIM $NVSHARE_SIM_DIR"'
    shell = f"{result.output}\n{check}"
    out = subprocess.run(["sh", "-ec", shell], check=True, capture_output=True, text=True).stdout
    assert out == f"t4:1 {tmp_path}\n"
