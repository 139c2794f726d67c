"""Write the pages that are made from tables, or with --check say which of them are stale."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from nvshare.core import grant, tenant_state
from nvshare.exporters.cluster import settings as cluster_settings
from nvshare.exporters.monitor import settings as monitor_settings
from nvshare.exporters.vgpu import settings as vgpu_settings
from nvshare.metrics.dashboards import DASHBOARDS, dashboard_json
from nvshare.metrics.dashboards.hami import config_map
from nvshare.metrics.document import metrics_page, subject_tables
from nvshare.metrics.hami_document import cluster_page, monitor_page, vgpu_page
from nvshare.metrics.plugin import PLUGIN
from nvshare.node.config import daemon_settings_page
from nvshare.plugin.config import plugin_settings_section
from nvshare.wire.document import protocol_page
from tools.monitoring_manifests import COMPONENT, grafana_dashboards, prometheus_rule

ROOT: Final = Path(__file__).resolve().parent.parent
ARCHITECTURE: Final = "docs/architecture.md"
BEGINNING: Final = "<!-- made from src/nvshare/core/{}.py by `make docs` -->"
END: Final = "<!-- end -->"
PARTS: Final = {"tenant_state": tenant_state.document, "grant": grant.document}


def architecture_page() -> str:
    """As it is, but for the parts that are made from the tables of tenant states and of grants."""
    path = ROOT / ARCHITECTURE
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    for module, document in PARTS.items():
        beginning = BEGINNING.format(module)
        before, _, rest = text.partition(beginning)
        _, _, after = rest.partition(END)
        text = "\n".join([before + beginning, "", *document(), "", END + (after or "\n")])
    return text


def settings_page() -> str:
    """Of the daemon, the library, the device plugin and the exporters."""
    sections = [plugin_settings_section()]
    sections += [one.settings_section() for one in (monitor_settings, cluster_settings, vgpu_settings)]
    return daemon_settings_page() + "\n".join(line for section in sections for line in section) + "\n"


PLUGINS_METRICS: Final = """
# Metrics of the device plugin

`nvshare device-plugin` serves them on port 9403 when `NVSHARE_METRICS_ENABLE` is 1 (flag `--metrics`).
Generated from the tables in `src/nvshare/metrics/plugin`.
"""


def all_metrics_page() -> str:
    return "\n".join([metrics_page() + PLUGINS_METRICS, *subject_tables(PLUGIN)])


PAGES: Final[dict[str, Callable[[], str]]] = {
    ARCHITECTURE: architecture_page,
    "docs/protocol.md": protocol_page,
    "docs/settings.md": settings_page,
    "docs/metrics.md": all_metrics_page,
    "docs/metrics-monitor.md": monitor_page,
    "docs/metrics-cluster.md": cluster_page,
    "docs/metrics-vgpu.md": vgpu_page,
    "deploy/kustomize/components/hami/grafana-dashboard.yaml": config_map,
    **{f"deploy/grafana/{name}.json": partial(dashboard_json, one) for name, one in DASHBOARDS.items()},
    f"{COMPONENT}/prometheus-rule.yaml": prometheus_rule,
    f"{COMPONENT}/grafana-dashboards.yaml": grafana_dashboards,
}


def stale_pages() -> list[str]:
    """The pages whose file differs from what the tables say now."""
    return [
        page
        for page, text in PAGES.items()
        if not (ROOT / page).is_file() or (ROOT / page).read_text(encoding="utf-8") != text()
    ]


def main(arguments: list[str]) -> int:
    """The exit code: 1 if --check found a stale page, 2 for a bad argument."""
    if arguments not in ([], ["--check"]):
        print(f"unknown arguments {arguments}; accepted: nothing, or --check", file=sys.stderr)
        return 2
    stale = stale_pages()
    if arguments:
        for page in stale:
            print(f"{page} is stale; run `make docs`", file=sys.stderr)
        return 1 if stale else 0
    for page in stale:
        (ROOT / page).write_text(PAGES[page](), encoding="utf-8")
        print(f"wrote {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
