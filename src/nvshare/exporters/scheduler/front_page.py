"""The page at ``/``: links, and the present state of GPUs and pods. Made in parts."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Final

from nvshare import __version__
from nvshare.core.view.observe import GpuCopy, TenantCopy
from nvshare.exporters.scheduler.view import View

_LINKS: Final = ("metrics", "healthz", "readyz")
_STYLE: Final = (
    "body{font:15px system-ui,sans-serif;margin:2em auto;max-width:80em;padding:0 1em}"
    "body{color:#222;background:#fff}"
    "table{border-collapse:collapse;margin:1em 0;width:100%}"
    "th,td{text-align:left;padding:.3em .8em;border-bottom:1px solid #ddd;white-space:nowrap}"
    "td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
    "@media(prefers-color-scheme:dark){body{color:#ddd;background:#181818}th,td{border-color:#444}a{color:#8cf}}"
)
_MIB: Final = 1 << 20


def _row(cells: list[str], tag: str = "td", numbers_from: int = 1) -> str:
    marks = (' class="n"' if place >= numbers_from else "" for place in range(len(cells)))
    return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True))


def _table(head: list[str], rows: Iterator[list[str]], numbers_from: int) -> Iterator[str]:
    yield f"<table><tr>{_row(head, 'th', numbers_from)}</tr>"
    for row in rows:
        yield f"<tr>{_row(row, 'td', numbers_from)}</tr>"
    yield "</table>"


def _gpu_rows(view: View) -> Iterator[list[str]]:
    readings = {reading.uuid: reading for reading in view.readings}
    for gpu in view.gpus:
        reading = readings.get(gpu.gpu)
        running, waiting, outside = gpu.queued_clients()
        on = view.figures.scheduling_on
        used = "–" if reading is None or reading.used_bytes is None else f"{reading.used_bytes // _MIB}"
        busy = "–" if reading is None or reading.gpu_percent is None else f"{reading.gpu_percent} %"
        name = "–" if reading is None or reading.name is None else reading.name
        if reading is not None and reading.simulated:
            name += " (simulated)"
        figures = [used, f"{gpu.safe_limit_bytes // _MIB}", busy]
        figures += [str(running) if on else "–", str(waiting), str(outside)]
        yield [str(gpu.number), gpu.gpu, name, *figures]


def _tenant_rows(view: View) -> Iterator[list[str]]:
    for gpu in view.gpus:
        for tenant in gpu.tenants:
            if tenant.clients:
                quota = "–" if not tenant.limited else f"{tenant.percent} %"
                limit = "–" if not tenant.limit_bytes else f"{tenant.limit_bytes // _MIB}"
                usage = f"{gpu.window_used_ns(tenant) * 100 / gpu.window_ns:.0f} %"
                state = _state(gpu, tenant)
                if not view.figures.scheduling_on:  # its state is not known then
                    state, usage = "ungated", "–"
                figures = [str(len(tenant.clients)), f"{tenant.used_bytes // _MIB}", limit, usage, quota]
                yield [tenant.pod, str(gpu.number), state, *figures]


def _state(gpu: GpuCopy, tenant: TenantCopy) -> str:
    if tenant.holding:
        return "running"
    if tenant.queued:
        return "throttled" if gpu.throttled(tenant) else "waiting"
    return "idle"


def front_page(view: View) -> Iterator[str]:
    links = " · ".join(f'<a href="{name}">/{name}</a>' for name in _LINKS)
    gpus = _table(
        ["GPU", "UUID", "name", "used MiB", "safe limit MiB", "busy", "running", "in line", "held back"],
        _gpu_rows(view),
        3,
    )
    tenants = _table(
        ["pod", "GPU", "state", "processes", "allocated MiB", "limit MiB", "used of window", "quota"],
        _tenant_rows(view),
        3,
    )
    off = "" if view.figures.scheduling_on else "<p>Scheduling is off: all run ungated.</p>"
    nvml = "" if view.nvml_up else "<p>NVML does not answer: figures of the GPUs themselves are missing.</p>"
    simulated = (
        "<p><strong>Simulated GPUs: nothing here uses a real one.</strong></p>"
        if any(reading.simulated for reading in view.readings)
        else ""
    )
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="5">'
        f"<title>nvshare</title><style>{_STYLE}</style></head><body>"
        f"<h1>nvshare {escape(__version__)}</h1><p>{links}</p>{simulated}{off}{nvml}"
    )
    yield from gpus
    yield from tenants
    yield "</body></html>\n"
