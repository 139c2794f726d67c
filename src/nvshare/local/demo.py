"""The demo: six tenants on one node, explained by a table.

1. Everything is real, except the GPUs where there are none: the daemon, ``nvshare run``, unmodified programs.
   The shares are the daemon's own figures.
2. The node has temporary directories of its own, so it disturbs no other. Daemon and tenants end with us,
   even if we are killed; then the temporary directory remains.
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from nvshare.local.screen import Screen, end_signal
from nvshare.local.summary import TenantRow, as_lines, as_table, on_terminal
from nvshare.local.supervisor import Node, NodeError, NodePlan, end_with_parent
from nvshare.local.up import describe
from nvshare.runtime.own_modules import module_command

NAMESPACE: Final = "demo"
SLICE_SEC: Final = 10
VISIT_SEC: Final = 8.0
AWAY_SEC: Final = 6.0
END_SEC: Final = 10
_LONG_SEC: Final = 1_000_000
_FLOAT_BYTES: Final = 4
_PAIR_PART: Final = 0.75
_SMALL_BYTES: Final = 1 << 30


@dataclass(slots=True)
class Tenant:
    """One tenant and its process."""

    name: str
    gpu: int
    story: str
    options: tuple[str, ...] = ()
    memory_bytes: int = _SMALL_BYTES
    visits: bool = False  # comes and goes
    process: subprocess.Popen[bytes] | None = field(default=None)
    next_change: float = 0.0

    @property
    def pod(self) -> str:
        return f"{NAMESPACE}/{self.name}"

    @property
    def side(self) -> int:
        """The size of the four matrices that fill its memory."""
        return math.isqrt(self.memory_bytes // (4 * _FLOAT_BYTES))


def cast(totals_bytes: list[int]) -> list[Tenant]:
    """The tenants, on GPUs with this much memory. With one GPU the pair shares it with the others."""
    last = len(totals_bytes) - 1
    pair_bytes = int(totals_bytes[last] * _PAIR_PART)
    pair_story = f"two that do not fit together: {SLICE_SEC} s each, in turn"
    return [
        Tenant("thirty", 0, "asked for 30 %", ("--gpu-core-limit", "30")),
        Tenant("sixty", 0, "asked for 60 %", ("--gpu-core-limit", "60")),
        Tenant("free", 0, "no quota: has what the others leave"),
        Tenant("pair-a", last, pair_story, memory_bytes=pair_bytes),
        Tenant("pair-b", last, pair_story, memory_bytes=pair_bytes),
        Tenant("visitor", 0, "5 %, comes and goes", ("--gpu-core-limit", "5"), visits=True),
    ]


class Troupe:
    """The tenants' processes."""

    def __init__(self, tenants: list[Tenant], plan: NodePlan) -> None:
        self.tenants = tenants
        self._directory = plan.private_dir
        self._environment = {
            **os.environ,
            "NVSHARE_SOCK_DIR": str(plan.sock_dir),
            "NVSHARE_PRIVATE_DIR": str(plan.private_dir),
        }

    def start(self) -> None:
        for tenant in self.tenants:
            self._enter(tenant)

    def _enter(self, tenant: Tenant) -> None:
        run = module_command("nvshare", "run", "--pod", tenant.pod, "--gpu", str(tenant.gpu))
        workload = module_command("nvshare.workloads", "w5", "--size", str(tenant.side))
        tenant.process = subprocess.Popen(
            [*run, *tenant.options, "--", *workload, "--duration", str(_LONG_SEC)],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._log(tenant).open("ab"),
            process_group=0,  # we handle Ctrl-C ourselves
            preexec_fn=end_with_parent,
        )
        tenant.next_change = time.monotonic() + VISIT_SEC

    def _log(self, tenant: Tenant) -> Path:
        return self._directory / f"{tenant.name}.log"

    def tick(self) -> None:
        """Start and end visitors. Raises NodeError when another tenant has ended."""
        for tenant in self.tenants:
            code = tenant.process.poll() if tenant.process is not None else None
            if code is not None:
                last = self._log(tenant).read_text(errors="replace").strip().splitlines()[-1:]
                raise NodeError(f"{tenant.pod} ended with code {code}: {''.join(last)}", 1)
            if not tenant.visits or time.monotonic() < tenant.next_change:
                continue
            if tenant.process is None:
                self._enter(tenant)
            else:
                self._leave(tenant)
                tenant.next_change = time.monotonic() + AWAY_SEC

    def _leave(self, tenant: Tenant) -> None:
        if tenant.process is None:
            return
        tenant.process.terminate()
        try:
            tenant.process.wait(END_SEC)
        except subprocess.TimeoutExpired:
            os.killpg(tenant.process.pid, signal.SIGKILL)
            tenant.process.wait()
        tenant.process = None

    def close(self) -> None:
        for tenant in self.tenants:
            if tenant.process is not None:
                tenant.process.terminate()
        for tenant in self.tenants:
            self._leave(tenant)


@contextlib.contextmanager
def stage() -> Iterator[NodePlan]:
    """Directories for a separate node, removed at the end."""
    directory = Path(tempfile.mkdtemp(prefix="nvshare-demo-"))
    directory.chmod(0o711)
    slices = {"NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": str(SLICE_SEC)}
    try:
        yield NodePlan(directory / "s", directory / "p", settings=slices)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def what_to_try(plan: NodePlan) -> str:
    python = _as_typed(Path(sys.executable))
    beside = Path(sys.executable).with_name("nvshare")
    command = _as_typed(beside) if beside.exists() else f"{python} -m nvshare"
    return "\n".join(
        (
            "Try, in another terminal:",
            f"  export NVSHARE_PRIVATE_DIR={plan.private_dir}",
            f"  {command} ctl quota set {NAMESPACE}/thirty --core 10",
            f"  {command} ctl explain {NAMESPACE}/pair-b",
            f"  {command} run --gpu-core-limit 20 -- {python} -m nvshare.workloads w5",
            "Ctrl-C ends it and leaves nothing behind.",
        )
    )


def _as_typed(path: Path) -> str:
    """As a user in our directory would write it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def story(tenants: list[Tenant]) -> str:
    return "\n".join(f"  {tenant.pod} on gpu {tenant.gpu}: {tenant.story}" for tenant in tenants)


def demo(seconds: float) -> list[TenantRow]:
    """Show it for this long, or until a signal; each tenant's share over the whole time. Raises NodeError."""
    with end_signal() as wake, stage() as plan:
        node = Node(plan)
        node.start()
        try:
            gpus: list[dict[str, Any]] = node.control.ask("GET", "/v1/gpus")["gpus"]
            troupe = Troupe(cast([gpu["total_bytes"] for gpu in gpus]), plan)
            screen = Screen(node, describe(node), what_to_try(plan), story(troupe.tenants))
            try:
                troupe.start()
                screen.show(wake, seconds, troupe.tick)
                return screen.totals.rows()
            finally:
                troupe.close()
        finally:
            node.stop()


def tell_end(rows: list[TenantRow]) -> None:
    title = "What each asked for and got, over its whole time"
    if on_terminal():
        Console().print(as_table(rows, title))
    else:
        print("\n".join((title, *as_lines(rows))), flush=True)
