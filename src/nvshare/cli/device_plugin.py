"""``nvshare device-plugin``: offers parts of a node's GPUs to the kubelet."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from nvshare.cli.daemon_start import config_or_exit


@click.command("device-plugin")
@click.option("--virtual-devices", metavar="N", help="Devices that each GPU is offered as.")
@click.option(
    "--policy", type=click.Choice(["spread", "pack"]), help="Which GPU is preferred for a container."
)
@click.option("--kubelet-dir", metavar="DIR", help="The kubelet's directory.")
@click.option("--sock-dir", metavar="DIR", help="Directory of the scheduler's socket and the library.")
@click.option("--metrics/--no-metrics", default=None, help="Serve metrics, /healthz and /readyz.")
@click.option("--metrics-addr", metavar="[HOST:]PORT", help="Address to serve metrics on.")
@click.option("--web.config.file", "web_config", metavar="FILE", help="TLS and users of the metrics port.")
@click.option("--config", "file", type=click.Path(path_type=Path), help="YAML file with settings.")
@click.option(
    "--print-config", "show", is_flag=True, help="Show each setting and where it comes from, and exit."
)
def command(
    virtual_devices: str | None,
    policy: str | None,
    kubelet_dir: str | None,
    sock_dir: str | None,
    metrics: bool | None,
    metrics_addr: str | None,
    web_config: str | None,
    file: Path | None,
    show: bool,
) -> None:
    """Offer parts of this node's GPUs to the kubelet, as nvshare.com/gpu.

    \b
    Examples:
      nvshare device-plugin --metrics
      NVSHARE_VIRTUAL_DEVICES=4 nvshare device-plugin --policy pack
      nvshare device-plugin --config /etc/nvshare-plugin.yaml --print-config

    \b
    Exit codes: 0 ended by a signal; 2 a setting is not accepted, or a directory
    or file cannot be used.
    """
    try:
        from nvshare.plugin.config import Config, load
    except ImportError as error:
        print(
            f"Error: {error}; the device plugin needs the extra k8s: pip install 'nvshare[k8s]'",
            file=sys.stderr,
        )
        sys.exit(2)
    flags = {
        "NVSHARE_VIRTUAL_DEVICES": virtual_devices or "",
        "NVSHARE_ALLOCATION_POLICY": policy or "",
        "NVSHARE_KUBELET_DIR": kubelet_dir or "",
        "NVSHARE_SOCK_DIR": sock_dir or "",
        "NVSHARE_METRICS_ENABLE": "" if metrics is None else str(int(metrics)),
        "NVSHARE_METRICS_ADDR": metrics_addr or "",
        "NVSHARE_METRICS_WEB_CONFIG_FILE": str(Path(web_config).absolute()) if web_config else "",
    }

    def read() -> Config:
        return load(flags, os.environ, file)

    config = config_or_exit(read, show)
    from nvshare.plugin.daemon import DevicePlugin  # --print-config needs no event loop

    sys.exit(DevicePlugin(config, read).run())
