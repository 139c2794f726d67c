"""``nvshare scheduler``: the daemon of a node."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nvshare.cli.daemon_start import config_or_exit
from nvshare.node.config import Config, load
from nvshare.runtime.paths import CONTROL_SOCKET, SCHEDULER_SOCKET

if TYPE_CHECKING:
    from nvshare.node.daemon import MakeCompanion


@click.command("scheduler")
@click.option(
    "--sock-dir", metavar="DIR", help=f"Directory of {SCHEDULER_SOCKET}, which programs connect to."
)
@click.option("--private-dir", metavar="DIR", help=f"Directory of {CONTROL_SOCKET}, checkpoint and token.")
@click.option("--gpus", metavar="nvml|UUID=16Gi,...", help="Ask NVML for the GPUs, or name them.")
@click.option(
    "--kubernetes",
    type=click.Choice(["auto", "on", "off"]),
    help="Names and limits of pods from the API server; auto: in a cluster.",
)
@click.option("--metrics/--no-metrics", default=None, help="Serve metrics, and sample the GPUs for them.")
@click.option("--metrics-addr", metavar="[HOST:]PORT", help="Address to serve metrics on.")
@click.option("--web.config.file", "web_config", metavar="FILE", help="TLS and users of the metrics port.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="YAML file with settings.")
@click.option(
    "--print-config", "show", is_flag=True, help="Show each setting and where it comes from, and exit."
)
def command(
    sock_dir: str | None,
    private_dir: str | None,
    gpus: str | None,
    kubernetes: str | None,
    metrics: bool | None,
    metrics_addr: str | None,
    web_config: str | None,
    file: Path | None,
    show: bool,
) -> None:
    """Run the daemon that decides who may use the GPUs of this machine, and when.

    \b
    Examples:
      nvshare scheduler --metrics
      nvshare scheduler --config /etc/nvshare.yaml
      NVSHARE_NODE_NAME=gpu-1 nvshare scheduler --kubernetes on
      nvshare scheduler --config /etc/nvshare.yaml --print-config

    \b
    Exit codes: 0 ended by a signal; 2 a setting is not accepted, or a directory
    cannot be used; 4 another daemon uses the directory.
    """
    flags = {
        "NVSHARE_SOCK_DIR": sock_dir or "",
        "NVSHARE_PRIVATE_DIR": private_dir or "",
        "NVSHARE_GPUS": gpus or "",
        "NVSHARE_KUBERNETES": kubernetes or "",
        "NVSHARE_METRICS_ENABLE": "" if metrics is None else str(int(metrics)),
        "NVSHARE_METRICS_ADDR": metrics_addr or "",
        "NVSHARE_METRICS_WEB_CONFIG_FILE": str(Path(web_config).absolute()) if web_config else "",
    }

    def read() -> Config:
        return load(flags, os.environ, file)

    config = config_or_exit(read, show)
    from nvshare.node.daemon import Daemon  # --print-config needs no event loop

    companions: tuple[MakeCompanion, ...] = ()
    if config.switched_on("NVSHARE_METRICS_ENABLE"):
        from nvshare.exporters.scheduler.service import metrics_service

        companions = (metrics_service,)
    sys.exit(Daemon(config, read, companions).run())
