"""``nvshare simulate``: the scheduler in virtual time."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from nvshare.cli.errors import EXIT_BAD_INPUT, fail
from nvshare.sim import scenario_file
from nvshare.sim.plot import svg
from nvshare.sim.result import RunResult, run
from nvshare.sim.scenario import MS_NS, SECOND_NS, Scenario
from nvshare.sim.table import show

SHOW_PROGRESS_AFTER_SECONDS = 1.0


@click.command()
@click.argument("scenario", required=False)
@click.option("--list", "list_presets", is_flag=True, help="List the presets and what each shows.")
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="The same seed gives the same output.",
)
@click.option("--hours", type=click.FloatRange(0, 8760, min_open=True), help="Virtual time to simulate.")
@click.option("--kernel-ms", metavar="MS", help="Kernel length of all tenants: 5, 0.1, 25-50 or mixed.")
@click.option("--handover-ms", type=click.FloatRange(0, 1000), help="Time from a release to the next launch.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option(
    "--plot",
    metavar="FILE.svg",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw who held each GPU when, as SVG.",
)
def command(
    scenario: str | None,
    list_presets: bool,
    seed: int,
    hours: float | None,
    kernel_ms: str | None,
    handover_ms: float | None,
    as_json: bool,
    plot: Path | None,
) -> None:
    """Run the scheduler in virtual time against modelled programs.

    SCENARIO is a preset (see --list), quotas such as 30+60 or 25+75+u (u: unlimited), or a TOML file.

    \b
    Examples:
      nvshare simulate 30+60
      nvshare simulate 10+20+30+40 --kernel-ms 25-50 --seed 7
      nvshare simulate collectives --plot who-held-what.svg
      nvshare simulate day --hours 2 --json
      nvshare simulate my-cluster.toml
    """
    if list_presets:
        _list(as_json)
        return
    if scenario is None:
        raise click.UsageError("which scenario? Try: nvshare simulate 30+60, or nvshare simulate --list")
    chosen = _choose(scenario, hours, kernel_ms, handover_ms)
    if plot is not None:
        _check_plot(plot)
    result = _run(chosen, seed)
    if as_json:
        click.echo(json.dumps(result.to_json(), indent=2))
    else:
        show(result, Console(width=None if sys.stdout.isatty() else 140))
    if plot is not None:
        try:
            plot.write_text(svg(result), encoding="utf-8")
        except OSError as error:
            fail(f"--plot {plot}: {error.strerror}", EXIT_BAD_INPUT)
        click.echo(f"plot: {plot}", err=as_json)


def _check_plot(plot: Path) -> None:
    if plot.suffix.lower() != ".svg":
        raise click.UsageError(f"--plot {plot}: plots are SVG; accepted: a file name that ends in .svg")
    if not plot.parent.is_dir():
        raise click.UsageError(f"--plot {plot}: there is no directory {plot.parent}")
    if not os.access(plot if plot.exists() else plot.parent, os.W_OK):
        raise click.UsageError(f"--plot {plot}: not permitted to write there")


def _list(as_json: bool) -> None:
    named = scenario_file.presets()
    if as_json:
        click.echo(json.dumps(named, indent=2))
        return
    width = max(map(len, named))
    for name, description in named.items():
        click.echo(f"{name:<{width}}  {description}")


def _choose(name: str, hours: float | None, kernel_ms: str | None, handover_ms: float | None) -> Scenario:
    try:
        chosen = scenario_file.load(name)
        if kernel_ms is not None:
            chosen = chosen.with_kernels(scenario_file.parse_kernel(kernel_ms))
    except scenario_file.ScenarioError as error:
        raise click.UsageError(str(error)) from None
    if hours is not None:
        chosen = replace(chosen, duration_ns=round(hours * 3600 * SECOND_NS))
    if handover_ms is not None:
        chosen = replace(chosen, handover_ns=round(handover_ms * MS_NS))
    return chosen


def _run(scenario: Scenario, seed: int) -> RunResult:
    """With a progress bar on the terminal, once it is clear that it will take a moment."""
    console = Console(stderr=True)
    started = time.monotonic()
    with Progress(
        TextColumn(f"simulating {scenario.name}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=1.0, visible=False)

        def progress(part: float) -> None:
            late = time.monotonic() - started > SHOW_PROGRESS_AFTER_SECONDS
            bar.update(task, completed=part, visible=late)

        return run(scenario, seed, progress)
