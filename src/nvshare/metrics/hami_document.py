"""The pages of the ports that HAMi's and k8s-vgpu-monitor's users know, made from their catalogs."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.catalog import Catalog
from nvshare.metrics.cluster import CLUSTER
from nvshare.metrics.cluster import hami as cluster_rows
from nvshare.metrics.families import Metric
from nvshare.metrics.hami_names import LEGACY, SEED, Named
from nvshare.metrics.monitor import MONITOR
from nvshare.metrics.monitor import hami as monitor_rows
from nvshare.metrics.rows import FIXED
from nvshare.metrics.vgpu import VGPU

_HEAD: Final = """\
# {title}

Generated from the tables in `src/nvshare/metrics/{package}`; `make docs` writes it. Do not edit.

{text}
"""
_NAMES: Final = """\
`--names` says which of HAMi's names are shown: `seed` (those of HAMi's documentation), `legacy` (the same as
releases have them behind `--legacy-metrics`), `current` (those that begin with `hami_`), or `all`; by default
`seed,current`. A name is shown once; if several sets have it, the labels of the seed win. The label
`zone="vGPU"` is on legacy and current series alone. Names that end in `_ratio` and are HAMi's have HAMi's
scale, mostly 0 to 100. What is different from HAMi: [hami.md](hami.md)."""
_MONITOR: Final = f"""\
`nvshare monitor` serves them on port 9394 of every node.

{_NAMES}"""
_CLUSTER: Final = f"""\
`nvshare cluster` serves them on port 31993, one for a cluster.

{_NAMES}"""
_VGPU: Final = """\
`nvshare monitor --profile vgpu`, or `vgpu_monitor`, serves them on port 8080. Figures are taken every 5 s.
`namespace` is left out with `--no-namespace-label`. A MB is 2^20 bytes. Utilisation is physical: it is not
multiplied by the number of parts."""


def _table(metrics: list[Metric]) -> list[str]:
    lines = ["| name | type | labels | source | fixed | meaning |", "|---|---|---|---|---|---|"]
    for metric in metrics:
        text = metric.help + (f" ({metric.note})" if metric.note else "")
        fixed = "yes" if metric.since == FIXED else ""
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.source} | {fixed} | {text} |")
    return lines


def _page(catalog: Catalog, title: str, package: str, text: str, figures: tuple[Named, ...]) -> str:
    lines = [_HEAD.format(title=title, package=package, text=text)]
    for subject in catalog.subjects:
        lines += [f"## {subject.title}", "", *_table(catalog.of_subject(subject)), ""]
    differ = [_legacy(one) for one in figures if one.metrics.get(LEGACY) is not None]
    rows = [f"| `{metric.name}` | {', '.join(metric.labels)} |" for metric in differ if metric is not None]
    if rows:
        head = "## Legacy names with other labels than the seed's, beside `zone`"
        lines += [head, "", "| name | labels |", "|---|---|", *rows, ""]
    return "\n".join(lines)


def _legacy(figure: Named) -> Metric | None:
    legacy, seed = figure.metrics[LEGACY], figure.metrics[SEED]
    return legacy if legacy.labels[:-1] != seed.labels else None


def _figures(module: object) -> tuple[Named, ...]:
    return tuple(one for one in vars(module).values() if isinstance(one, Named))


def monitor_page() -> str:
    title = "Metrics of the node monitor"
    return _page(MONITOR, title, "monitor", _MONITOR, _figures(monitor_rows))


def cluster_page() -> str:
    title = "Metrics of the cluster exporter"
    return _page(CLUSTER, title, "cluster", _CLUSTER, _figures(cluster_rows))


def vgpu_page() -> str:
    return _page(VGPU, "Metrics of the k8s-vgpu-monitor profile", "vgpu", _VGPU, ())
