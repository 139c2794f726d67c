"""``nvshare sim``: simulated GPUs as their driver sees them."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from nvshare.sim.gpu import (
    CardStatus,
    NodeStatus,
    SimulatedNode,
    SimulatorError,
    library_directory,
)

_MIB = 1 << 20


class _Refused(click.ClickException):
    exit_code = 2


@dataclass(frozen=True, slots=True)
class _Place:
    directory: Path | None
    cards: str | None

    def node(self) -> SimulatedNode:
        try:
            return SimulatedNode(self.directory, self.cards)
        except SimulatorError as error:
            raise _Refused(str(error)) from error


@click.group()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    help="State directory (default: $NVSHARE_SIM_DIR).",
)
@click.option("--cards", help="Cards of a new state directory, such as t4:2,a800:8 (default: $NVSHARE_SIM).")
@click.pass_context
def command(context: click.Context, directory: Path | None, cards: str | None) -> None:
    """Simulated GPUs: their true state, faults on demand, reset.

    \b
    Examples:
      eval "$(nvshare sim --cards t4:2 env)"
      nvshare sim status --json
      nvshare sim fault lost 0
    """
    context.obj = _Place(directory, cards)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, in bytes and nanoseconds.")
@click.pass_obj
def status(place: _Place, as_json: bool) -> None:
    """What the driver itself counts, per card and process."""
    node = place.node()
    if as_json:
        click.echo(node.status_json())
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
    console.print(f"{node.directory} ({node.spec})")
    for card in node.cards:
        console.print(_card_line(card))
        if not card.processes:
            continue
        table = Table("pid", "name", "used MiB", "managed MiB", "resident MiB", "busy s", "launches")
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
    nvml-down | nvml-up               NVML cannot be used
    lost CARD | back CARD             the card falls off the bus, and returns
    hang FUNCTION [CARD] | unhang     calls of one function do not return, of NVML's also on one card alone
    unsupported FUNCTION [CARD] | supported    calls of one NVML function answer that it is not supported
    ecc-corrected CARD N              N more errors
    ecc-uncorrected CARD N
    xid CARD N                        an XID event
    slow-pcie CARD FACTOR             copies and page faults take FACTOR times as long
    driver-restart                    every context ends
    """
    try:
        place.node().fault(kind, target, value)
    except SimulatorError as error:
        raise _Refused(str(error)) from error


@command.command()
@click.pass_obj
def reset(place: _Place) -> None:
    """Forget every process, figure and fault; cards and UUIDs stay."""
    place.node().reset()


@command.command()
@click.pass_obj
def env(place: _Place) -> None:
    """Print the exports with which a program finds the simulated driver."""
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
