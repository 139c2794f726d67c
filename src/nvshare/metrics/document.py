"""docs/metrics.md, made from the catalog. Pure: a tool writes it."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.catalog import Catalog
from nvshare.metrics.families import Metric
from nvshare.metrics.rows import FIXED
from nvshare.metrics.scheduler import SCHEDULER

_HEAD: Final = """\
# Metrics

Generated from the tables in `src/nvshare/metrics/scheduler`; `make docs` writes it. Do not edit.

`nvshare scheduler` serves them on port 9402 when `NVSHARE_METRICS_ENABLE` is 1 (flag `--metrics`): text
0.0.4, and OpenMetrics 1.0 on request. `/metrics?name[]=NAME` shows only that family. How to scrape,
alert and draw them: [operations.md](operations.md). Every variable: [settings.md](settings.md).

## How to read them

- A series exists from the moment its subject does, with 0, and ends with the first scrape after the subject
  is gone. GPUs are known from the start by NVML or by a list; without either one is known when its first
  client registers. Only totals of a pod (`nvshare_pod_*`) stay for `NVSHARE_METRICS_STALE_TTL_SEC` after its
  last process has left, and go on where they were if it comes back; those of the last 256 to leave over a
  restart of the daemon, too.
- Totals of pods that are here go on over a restart of the daemon, with what their processes did meanwhile.
  They are shown again when all processes of the GPU that may come back have done so, or after 5 s. After a
  crash up to a second of waits may be missing from them (throttled, swap, lock wait), and of work if a
  process came or came back within that second. All other counters begin anew, as Prometheus expects of them.
- All figures of one scrape are of one moment; figures of NVML are of its last look, whose age is
  `nvshare_snapshot_age_seconds`. A source that does not answer takes only its own series along, and
  `nvshare_source_up` says so. Of a GPU that is lost only what the daemon itself counts stays: its XIDs, the
  one it went with included.
- Counters never go back while the daemon lives.
- `namespace` and `pod` name the pod. What is in no pod has no namespace and its kind in the name:
  `container:ID`, `process:PID:START`; a pod that only its cgroup tells is `pod:UID`.
  With `NVSHARE_METRICS_DEBUG_LABELS=0` a program in no pod is `process:UID/COMMAND`, what several of one name
  have is added up, and there are at most 32 names of a user: the rest is `process:UID/other`.
- `gpu_index` is NVML's. Without NVML it is the order in which GPUs were named.
- `client_id` and `host_pid` are left out with `NVSHARE_METRICS_DEBUG_LABELS=0`; processes of a pod become one
  sample then. Bytes are added up, flags are 1 if any is, figures that are the pod's anyway stay.
- Metrics marked as fixed have the names, labels and label order of the earlier nvshare: what was written for
  it finds them, and they do not change. That is why `nvshare_gpu_process_count`, and names that end in
  `_ms` or `_percent`, are against Prometheus's conventions.
- `nvshare_gpu_simulated` is 1 for a simulated GPU. Its name, memory and all else are those of a real one.

## For users of the earlier nvshare

- `grep nvshare_client_info | wc -l` counts the HELP and TYPE lines too: with two clients there are four.
  `grep -c '^nvshare_client_info'` counts clients.
- Without NVML, figures of GPUs are missing and not 0.
- `DROP_LOCK`, disconnects and the two memory counters have the labels `gpu_uuid` and `reason`, and are there
  with 0 as soon as the GPU is known.
- `nvshare_scheduler_messages_total` counts what is sent as well as what is received. `MEM_UPDATE` and
  `LOCK_RELEASED` are of older clients; our library sends `MEM_USED` and `TURN_ENDED`.
- A client is a process, but quotas belong to the pod. What is the pod's is marked so below.
"""


def _cell(metric: Metric, debug_labels: frozenset[str]) -> str:
    labels = ", ".join(f"_{label}_" if label in debug_labels else label for label in metric.labels)
    text = metric.help.replace("|", r"\\|")
    if metric.note:
        text += f" ({metric.note})"
    fixed = "yes" if metric.since == FIXED else ""
    return f"| `{metric.name}` | {metric.kind} | {labels} | {metric.source} | {fixed} | {text} |"


def subject_tables(catalog: Catalog) -> list[str]:
    """A heading and a table for each subject."""
    lines = []
    for subject in catalog.subjects:
        lines += [
            f"## {subject.title}",
            "",
            "| name | type | labels | source | fixed | meaning |",
            "|---|---|---|---|---|---|",
        ]
        lines += [_cell(metric, catalog.debug_labels) for metric in catalog.of_subject(subject)]
        lines.append("")
    return lines


def metrics_page(catalog: Catalog = SCHEDULER) -> str:
    return "\n".join([_HEAD, *subject_tables(catalog), "Labels in italics are the debug labels.", ""])
