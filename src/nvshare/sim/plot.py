"""Who held each GPU when, as SVG: shares over the whole run, and two seconds of it close up."""

from __future__ import annotations

from typing import Final
from xml.sax.saxutils import escape

from nvshare.sim.result import RunResult, TenantResult
from nvshare.sim.table import asked
from nvshare.sim.world import BUCKETS

# Told apart by people who see colours differently, on white and in print.
COLOURS: Final = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#997700", "#004488")
WIDTH: Final = 960
LEFT: Final = 60
RIGHT: Final = 20
PLOT_WIDTH: Final = WIDTH - LEFT - RIGHT
OVERVIEW_HEIGHT: Final = 120
LANE_HEIGHT: Final = 16
GAP: Final = 26
LEGEND_HEIGHT: Final = 20


def svg(result: RunResult) -> str:
    parts: list[str] = []
    y = 34
    names = list(dict.fromkeys(tenant.name for tenant in result.tenants))
    colour = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(names)}
    for gpu in result.gpus:
        here = [tenant for tenant in result.tenants if tenant.gpu == gpu.index]
        parts.append(_text(LEFT, y, f"GPU {gpu.index}: share of each tenant over {result.seconds:g} s", 13))
        y += 8
        parts.extend(_overview(here, colour, y))
        parts.extend(_changes(here, y, result.seconds))
        y += OVERVIEW_HEIGHT
        parts.extend(_time_axis(y, 0.0, result.seconds))
        y += GAP + 8
        begin, end = result.closeup_ns
        parts.append(_text(LEFT, y, f"close up: who had GPU {gpu.index} from {begin / 1e9:g} s on", 13))
        y += 8
        parts.extend(_closeup(here, colour, y, begin, end))
        y += LANE_HEIGHT * max(1, len(here))
        parts.extend(_time_axis(y, begin / 1e9, end / 1e9))
        y += GAP + 16
    for index, tenant in enumerate(names):
        parts.extend(_legend(tenant, colour[tenant], result, y + index * LEGEND_HEIGHT))
    height = y + len(names) * LEGEND_HEIGHT + 10
    title = _text(LEFT, 16, f"{result.scenario}, seed {result.seed}", 15)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n{title}\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _overview(tenants: list[TenantResult], colour: dict[str, str], top: int) -> list[str]:
    """Stacked shares: the white above them is what nobody used."""
    parts = [_box(top, OVERVIEW_HEIGHT)]
    for percent in (0, 50, 100):
        y = top + OVERVIEW_HEIGHT * (100 - percent) / 100
        parts.append(_text(LEFT - 6, y + 4, f"{percent} %", 10, anchor="end"))
    base = [0.0] * BUCKETS
    step = PLOT_WIDTH / BUCKETS
    for tenant in tenants:
        upper = [min(1.0, low + share) for low, share in zip(base, tenant.buckets, strict=True)]
        edge = [
            (LEFT + step * i, level)
            for i, share in enumerate(upper)
            for i, level in ((i, share), (i + 1, share))
        ]
        floor = [
            (LEFT + step * i, level)
            for i, share in enumerate(base)
            for i, level in ((i, share), (i + 1, share))
        ]
        points = " ".join(
            f"{x:.1f},{top + OVERVIEW_HEIGHT * (1 - level):.1f}" for x, level in edge + floor[::-1]
        )
        parts.append(f'<polygon points="{points}" fill="{colour[tenant.name]}" fill-opacity="0.85"/>')
        base = upper
    return parts


def _changes(tenants: list[TenantResult], top: int, seconds: float) -> list[str]:
    """A line where a quota was changed, with what it became."""
    parts = []
    for tenant in tenants:
        for at_s, percent in tenant.quota_changes:
            x = LEFT + PLOT_WIDTH * at_s / max(seconds, at_s)
            words = f"{tenant.name}: " + ("unlimited" if percent == 100 else f"{percent} %")
            parts.append(
                f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + OVERVIEW_HEIGHT}" '
                f'stroke="#222222" stroke-dasharray="4 3"/>'
            )
            parts.append(_text(x + 4, top + 12, words, 10))
    return parts


def _closeup(
    tenants: list[TenantResult], colour: dict[str, str], top: int, begin: int, end: int
) -> list[str]:
    """One lane a tenant, a bar for each time it was served."""
    scale = PLOT_WIDTH / max(1, end - begin)
    parts = [_box(top, LANE_HEIGHT * max(1, len(tenants)))]
    for lane, tenant in enumerate(tenants):
        y = top + lane * LANE_HEIGHT + 2
        for first, last in _merged(tenant.closeup, int(0.5 / scale)):
            x = LEFT + (first - begin) * scale
            width = max(0.5, (last - first) * scale)
            parts.append(
                f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{LANE_HEIGHT - 4}" '
                f'fill="{colour[tenant.name]}"/>'
            )
    return parts


def _merged(stretches: tuple[tuple[int, int], ...], closer_ns: int) -> list[tuple[int, int]]:
    """Bars nearer than half a pixel are one bar."""
    merged: list[tuple[int, int]] = []
    for first, last in stretches:
        if merged and first - merged[-1][1] <= closer_ns:
            merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return merged


def _time_axis(y: int, begin: float, end: float) -> list[str]:
    return [
        _text(LEFT + PLOT_WIDTH * part / 4, y + 14, f"{begin + (end - begin) * part / 4:g} s", 10, "middle")
        for part in range(5)
    ]


def _legend(name: str, colour: str, result: RunResult, y: int) -> list[str]:
    shares = [
        f"GPU {tenant.gpu}: asked {asked(tenant, ' %')}, got {tenant.got_percent:.1f} %"
        for tenant in result.tenants
        if tenant.name == name
    ]
    return [
        f'<rect x="{LEFT}" y="{y}" width="12" height="12" fill="{colour}"/>',
        _text(LEFT + 18, y + 11, f"{name}  ({'; '.join(shares)})", 12),
    ]


def _box(top: int, height: int) -> str:
    return f'<rect x="{LEFT}" y="{top}" width="{PLOT_WIDTH}" height="{height}" fill="none" stroke="#bbbbbb"/>'


def _text(x: float, y: float, words: str, size: int, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="#222222">'
        f"{escape(words)}</text>"
    )
