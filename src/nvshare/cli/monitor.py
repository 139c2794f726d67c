"""``nvshare monitor``: metrics of a node's GPUs and containers, by HAMi's names and ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from nvshare.core.settings import SettingError
from nvshare.runtime.settings import Config, ConfigError, print_config

if TYPE_CHECKING:
    from nvshare.runtime.service import Service


@click.command("monitor")
@click.option(
    "--profile",
    type=click.Choice(["hami", "vgpu"]),
    default="hami",
    help="hami: HAMi's metrics on 9394; vgpu: those of k8s-vgpu-monitor on 8080.",
)
@click.option("--addr", metavar="[HOST:]PORT", help="Address to serve metrics on.")
@click.option("--names", metavar="SETS", help="HAMi's names: seed, legacy, current, with commas, or all.")
@click.option("--deprecated/--no-deprecated", default=None, help="Names that HAMi has deprecated.")
@click.option("--hook-path", metavar="DIR", help="Where HAMi's library works; default: /usr/local/vgpu.")
@click.option("--ratio-file", metavar="FILE", help="vgpu: the file with the number of parts of a GPU.")
@click.option("--interval", metavar="SECONDS", help="vgpu: how often figures are taken; default: 5.")
@click.option("--namespace-label/--no-namespace-label", default=None, help="vgpu: the label namespace.")
@click.option("--kubernetes", type=click.Choice(["auto", "on", "off"]), help="Ask the API server for pods.")
@click.option("--web.config.file", "web_config", metavar="FILE", help="TLS and users of the port.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="YAML file with settings.")
@click.option(
    "--print-config", "show", is_flag=True, help="Show each setting and where it comes from, and exit."
)
def command(
    profile: str,
    addr: str | None,
    names: str | None,
    deprecated: bool | None,
    hook_path: str | None,
    ratio_file: str | None,
    interval: str | None,
    namespace_label: bool | None,
    kubernetes: str | None,
    web_config: str | None,
    file: Path | None,
    show: bool,
) -> None:
    """Serve metrics of this node's GPUs and of the containers that use them.

    It reads what HAMi's library and the driver say, and changes nothing.

    \b
    Examples:
      NODE_NAME=gpu-1 nvshare monitor --kubernetes on
      nvshare monitor --names all --no-deprecated
      nvshare monitor --profile vgpu --ratio-file /etc/gpu_allocation.txt

    \b
    Exit codes: 0 ended by a signal; 2 a setting is not accepted, or the port
    cannot be used.
    """
    common = {
        "NVSHARE_KUBERNETES": kubernetes or "",
        "NVSHARE_METRICS_WEB_CONFIG_FILE": str(Path(web_config).absolute()) if web_config else "",
    }
    if profile == "vgpu":
        flags = {
            **common,
            "NVSHARE_VGPU_ADDR": addr or "",
            "NVSHARE_VGPU_RATIO_FILE": ratio_file or "",
            "NVSHARE_VGPU_INTERVAL_SEC": interval or "",
            "NVSHARE_VGPU_NAMESPACE_LABEL": "" if namespace_label is None else str(int(namespace_label)),
        }
        run_vgpu(flags, file, show)
    flags = {
        **common,
        "NVSHARE_MONITOR_ADDR": addr or "",
        "NVSHARE_HAMI_NAMES": names or "",
        "NVSHARE_MONITOR_DEPRECATED": "" if deprecated is None else str(int(deprecated)),
        "NVSHARE_MONITOR_HOOK_PATH": str(Path(hook_path).absolute()) if hook_path else "",
    }
    from nvshare.exporters.monitor.service import Monitor
    from nvshare.exporters.monitor.settings import load

    run(Monitor, lambda: load(flags, os.environ, file), show)


def run_vgpu(flags: dict[str, str], file: Path | None, show: bool) -> NoReturn:
    from nvshare.exporters.vgpu.service import VgpuMonitor
    from nvshare.exporters.vgpu.settings import load

    run(VgpuMonitor, lambda: load(flags, os.environ, file), show)


def run(make: type[Service[Config]], read: Callable[[], Config], show: bool) -> NoReturn:
    """The daemon, or what it is set to."""
    try:
        config = read()
    except (SettingError, ConfigError) as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    if show:
        print(print_config(config))
        sys.exit(0)
    sys.exit(make(config, read).run())


def vgpu_monitor() -> None:
    """The console script `vgpu_monitor`, by which users of k8s-vgpu-monitor know it."""
    command(["--profile", "vgpu", *sys.argv[1:]], prog_name="vgpu_monitor")
