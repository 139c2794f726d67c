"""Every command says how it is called, in words that fit a terminal, and takes --json wherever it answers."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click
import pytest

from nvshare.cli import COMMANDS, main


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for verb, inner in command.commands.items():
            yield from commands(inner, f"{name} {verb}")


EVERY = {"nvshare": main} | {
    path: found
    for name in COMMANDS
    for path, found in commands(
        importlib.import_module(f"nvshare.cli.{name.replace('-', '_')}").command, f"nvshare {name}"
    )
}


@pytest.mark.parametrize("name", sorted(name for name, command in EVERY.items() if not command.hidden))
def test_its_help_has_examples_that_fit(name: str) -> None:
    text = EVERY[name].get_help(click.Context(EVERY[name], info_name=name))
    assert "Examples:" in text
    assert name in text.split("Examples:")[1] or "nvshare" in text.split("Examples:")[1]
    assert max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize(
    "name", sorted(name for name, command in EVERY.items() if name.startswith("nvshare ctl "))
)
def test_json_is_accepted_behind_the_verb(name: str) -> None:
    command = EVERY[name]
    if not isinstance(command, click.Group):
        assert "--json" in {option for parameter in command.params for option in parameter.opts}


def test_the_policy_has_one_name_everywhere() -> None:
    for name in ("nvshare run", "nvshare ctl quota set"):
        assert "--core-policy" in {option for one in EVERY[name].params for option in one.opts}
