"""``nvshare cluster``: metrics of what is allocated in a cluster, by HAMi's names and ours."""

from __future__ import annotations

import os
from pathlib import Path

import click

from nvshare.cli.monitor import run


@click.command("cluster")
@click.option("--addr", metavar="[HOST:]PORT", help="Address to serve metrics on.")
@click.option("--names", metavar="SETS", help="HAMi's names: seed, legacy, current, with commas, or all.")
@click.option(
    "--kubernetes", type=click.Choice(["auto", "on"]), help="on: outside of a cluster, by KUBECONFIG."
)
@click.option("--web.config.file", "web_config", metavar="FILE", help="TLS and users of the port.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="YAML file with settings.")
@click.option(
    "--print-config", "show", is_flag=True, help="Show each setting and where it comes from, and exit."
)
def command(
    addr: str | None,
    names: str | None,
    kubernetes: str | None,
    web_config: str | None,
    file: Path | None,
    show: bool,
) -> None:
    """Serve metrics of a cluster's GPUs, and of what pods and namespaces were allocated of them.

    It reads nodes, pods and resource quotas from the API server, and changes nothing.

    \b
    Examples:
      nvshare cluster
      KUBECONFIG=~/.kube/config nvshare cluster --names all --addr 127.0.0.1:31993

    \b
    Exit codes: 0 ended by a signal; 2 a setting is not accepted, or the port
    or the API server's credentials cannot be used.
    """
    flags = {
        "NVSHARE_CLUSTER_ADDR": addr or "",
        "NVSHARE_HAMI_NAMES": names or "",
        "NVSHARE_KUBERNETES": kubernetes or "",
        "NVSHARE_METRICS_WEB_CONFIG_FILE": str(Path(web_config).absolute()) if web_config else "",
    }

    from nvshare.exporters.cluster.service import Cluster
    from nvshare.exporters.cluster.settings import load

    run(Cluster, lambda: load(flags, os.environ, file), show)
