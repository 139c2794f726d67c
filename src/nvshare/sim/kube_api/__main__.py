"""A double of the Kubernetes API server as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import click

from nvshare.sim.kube_api.credentials import write_kubeconfig
from nvshare.sim.kube_api.run import ADMIN_SOCKET, READY_FILE, Options, admin_token, start
from nvshare.sim.kube_api.store import HISTORY_CHANGES


@click.command()
@click.option("--dir", "directory", type=click.Path(path_type=Path), required=True, help="For its files.")
@click.option("--node", "nodes", multiple=True, help="A node that exists; may be repeated.")
@click.option("--history", type=click.IntRange(min=1), default=HISTORY_CHANGES, help="Changes that are kept.")
@click.option("--bookmark-sec", type=click.FloatRange(min=0.01), default=60.0, help="Between bookmarks.")
@click.option("--kubelet-sec", type=click.FloatRange(min=0), help="After which pods to be deleted are gone.")
@click.option("--ready-fd", type=int, hidden=True)
def main(
    directory: Path,
    nodes: tuple[str, ...],
    history: int,
    bookmark_sec: float,
    kubelet_sec: float | None,
    ready_fd: int | None,
) -> None:
    """Serve a simulated Kubernetes API on loopback until interrupted.

    The directory gets ca.crt, a kubeconfig and admin.sock, which takes one JSON command per line.

    \b
    Examples:
      python -m nvshare.sim.kube_api --dir /tmp/api --node n1
      KUBECONFIG=/tmp/api/kubeconfig kubectl get nodes
    """
    options = Options(
        directory=directory,
        nodes=nodes,
        history=history,
        bookmark_sec=bookmark_sec,
        kubelet_sec=kubelet_sec,
    )
    asyncio.run(_serve(options, ready_fd))


async def _serve(options: Options, ready_fd: int | None) -> None:
    server, commands = start(options)
    directory, ended = options.directory, asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    (directory / ADMIN_SOCKET).unlink(missing_ok=True)
    admin = await commands.serve_at(directory / ADMIN_SOCKET)
    url = f"https://127.0.0.1:{server.port}"
    kubeconfig = directory / "kubeconfig"
    write_kubeconfig(kubeconfig, url, server.ca_path, admin_token(directory), "default")
    (directory / READY_FILE).write_text(str(server.port))
    if ready_fd is None:
        click.echo(f"serving {url}; export KUBECONFIG={kubeconfig}")
    else:  # whoever started it holds its input: without them it ends
        asyncio.get_running_loop().add_reader(0, ended.set)
        os.write(ready_fd, b"ready\n")
        os.close(ready_fd)
    await ended.wait()
    admin.close()
    await server.close()


if __name__ == "__main__":
    main()
