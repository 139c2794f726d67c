"""``nvshare sim``: simulated GPUs as their driver sees them."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from nvshare.cli.errors import control_client, private_directory
from nvshare.client.control import NoDaemon, NotPermitted, Rejected
from nvshare.local.state import ForeignNodeError, read_state
from nvshare.plain_text import PlainTable, plain, plain_lines
from nvshare.sim.gpu import (
    CardStatus,
    NodeStatus,
    SimulatedNode,
    SimulatorError,
    check_cards,
    library_directory,
)

_MIB = 1 << 20


class _Refused(click.ClickException):
    exit_code = 2

    def format_message(self) -> str:
        return plain_lines(self.message)


@dataclass(frozen=True, slots=True)
class _Place:
    """The selected cards, and their directory."""

    directory: Path | None
    cards: str | None

    def existing(self) -> SimulatedNode:
        """Existing cards. Nothing is made or changed."""
        directory = self.directory or _directory_of_node()
        try:
            node = SimulatedNode.find(directory)
        except SimulatorError as error:
            hint = "start some with `nvshare up --sim t4:2`, or see `nvshare sim env --help`"
            raise _Refused(f"{error}; {hint}") from error
        there = node.status()
        if self.cards is not None and self.cards != there.spec:
            raise _Refused(
                f"--cards {self.cards!r}: the simulated GPUs in {there.directory} are {there.spec};"
                " leave --cards out, or name another directory with --dir"
            )
        return node

    def existing_or_new(self) -> SimulatedNode:
        """Makes the named cards where there are none yet."""
        named = self.cards or os.environ.get("NVSHARE_SIM")
        directory = self.directory or _directory_of_node()
        try:
            SimulatedNode.find(directory).close()
        except SimulatorError:
            if named:
                SimulatedNode(directory, named).close()
        return self.existing()


def _directory_of_node() -> Path | None:
    """The directory of the node that is up, unless the environment names another one."""
    if os.environ.get("NVSHARE_SIM_DIR") or os.environ.get("NVSHARE_SIM"):
        return None
    try:
        state = read_state(private_directory())
    except PermissionError:
        state = None
    except ForeignNodeError as error:
        raise _Refused(str(error)) from error
    if state is None:
        return _directory_of_roots_node()
    return None if state.simulated is None else Path(state.simulated.directory)


def _directory_of_roots_node() -> Path | None:
    """If it serves us."""
    if os.geteuid() == 0:
        return None
    try:
        simulated = control_client(None).ask("GET", "/v1/status")["simulated"]
    except (NoDaemon, NotPermitted, Rejected):
        return None
    return None if simulated is None else Path(simulated["directory"])


def _cards(_context: click.Context, _parameter: click.Parameter, cards: str | None) -> str | None:
    if cards is not None:
        try:
            check_cards(cards)
        except SimulatorError as error:
            raise _Refused(f"--cards: {error}") from error
    return cards


@click.group()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="State directory.  [default: $NVSHARE_SIM_DIR, or that of the node that is up]",
)
@click.option(
    "--cards",
    metavar="t4:2,a800:1",
    callback=_cards,
    help="Cards of a new state directory: presets, or a .toml file.  [default: $NVSHARE_SIM]",
)
@click.pass_context
def command(context: click.Context, directory: Path | None, cards: str | None) -> None:
    """Simulated GPUs: their true state, faults on demand, reset.

    Without --dir these are the GPUs of the node that `nvshare up` started: of your own, or else of root's
    if it serves you.

    \b
    Examples:
      nvshare sim status
      nvshare sim fault lost 0
      nvshare sim fault back 0
      eval "$(nvshare sim --cards t4:2 env)"     # for programs without a node
    """
    context.obj = _Place(directory, cards)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, in bytes and nanoseconds.")
@click.pass_obj
def status(place: _Place, as_json: bool) -> None:
    """Show what the simulated driver itself counts, per card and process.

    \b
    Examples:
      nvshare sim status
      nvshare sim status --json
    """
    node = place.existing()
    if as_json:
        click.echo(json.dumps(json.loads(node.status_json()), separators=(",", ":")))
    else:
        _print_status(node.status())


def _card_line(card: CardStatus) -> str:
    alive_ns = max(1, card.now_ns - card.created_ns)
    marks = " LOST" if card.lost else ""
    if card.pcie_slowdown > 1:
        marks += f" PCIe/{card.pcie_slowdown}"
    return (
        f"{card.index} {card.name} {card.uuid} {card.used_bytes // _MIB}/{card.total_bytes // _MIB} MiB, "
        f"busy {card.busy_ns / alive_ns:.1%}, switching {card.switch_ns / alive_ns:.1%}{marks}"
    )


def _print_status(node: NodeStatus) -> None:
    console = Console(soft_wrap=True, highlight=False)
    console.print(Text(plain(f"simulated GPUs in {node.directory} ({node.spec})")))
    for card in node.cards:
        console.print(Text(plain(_card_line(card))))
        if not card.processes:
            continue
        table = PlainTable("pid", "name", "used MiB", "managed MiB", "resident MiB", "busy s", "launches")
        for process in card.processes:
            table.add_row(
                str(process.pid),
                process.name,
                str(process.used_bytes // _MIB),
                str(process.managed_bytes // _MIB),
                str(process.resident_bytes // _MIB),
                f"{process.busy_ns / 1e9:.3f}",
                f"{process.completed_launches}/{process.launches}",
            )
        console.print(table)


@command.command()
@click.argument("kind")
@click.argument("target", required=False)
@click.argument("value", required=False)
@click.pass_obj
def fault(place: _Place, kind: str, target: str | None, value: str | None) -> None:
    """Make a fault happen, or end it.

    \b
    Examples:
      nvshare sim fault lost 0
      nvshare sim fault slow-pcie 0 4
      nvshare sim fault hang cuLaunchKernel

    \b
    nvml-down | nvml-up               NVML cannot be used
    lost CARD | back CARD             the card falls off the bus, and returns
    hang FUNCTION [CARD]              its calls do not return (CARD: NVML's only)
    unhang                            ends that
    unsupported FUNCTION [CARD]       an NVML function that is not supported
    supported                         ends that
    ecc-corrected CARD N              N more errors
    ecc-uncorrected CARD N
    xid CARD N                        an XID event
    slow-pcie CARD FACTOR             copies and paging take FACTOR times as long
    driver-restart                    every context ends
    """
    try:
        node = place.existing_or_new()
        node.fault(kind, target, value)
    except SimulatorError as error:
        raise _Refused(str(error)) from error
    words = " ".join(word for word in (kind, target, value) if word is not None)
    click.echo(f"{words}: done, on the simulated GPUs in {node.status().directory}")


@command.command()
@click.pass_obj
def reset(place: _Place) -> None:
    """Forget every process, figure and fault; cards and UUIDs stay.

    \b
    Examples:
      nvshare sim reset
    """
    node = place.existing()
    node.reset()
    click.echo(f"reset the simulated GPUs in {node.status().directory}")


@command.command()
@click.pass_obj
def env(place: _Place) -> None:
    """Print the exports with which a program finds the simulated driver.

    \b
    Examples:
      eval "$(nvshare sim --cards t4:2 env)"
      eval "$(nvshare sim --cards a800:1 --dir /tmp/my-cards env)"
    """
    try:
        directory = library_directory()
    except SimulatorError as error:
        raise _Refused(str(error)) from error
    rest = os.environ.get("LD_LIBRARY_PATH")
    click.echo(f"export LD_LIBRARY_PATH={shlex.quote(f'{directory}:{rest}' if rest else str(directory))}")
    for name, given in (("NVSHARE_SIM", place.cards), ("NVSHARE_SIM_DIR", place.directory)):
        value = given or os.environ.get(name)
        if value:
            click.echo(f"export {name}={shlex.quote(str(value))}")
