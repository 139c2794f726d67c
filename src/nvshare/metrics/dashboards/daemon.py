"""The scheduler itself, for who keeps it running."""

from __future__ import annotations

from typing import Final

from nvshare.metrics.dashboards import promql as p
from nvshare.metrics.dashboards.model import Dashboard, Mapped, Panel, Query, Section, Variable

_NODE: Final = "{{instance}}"


def _changes(metric: str) -> str:
    return p.increase(metric, p.NODES, "instance", p.RANGE)


def _age(sources: str, by: str) -> str:
    return f"max by ({by}) (nvshare_snapshot_age_seconds{{{p.NODES},{sources}}})"


def _by_reason(metric: str, where: str, what: str) -> tuple[Query, Query]:
    """How many, and as soon as there are any, why."""
    return (
        Query(p.increase(metric, where, ""), what),
        Query(f"{p.increase(metric, where, 'reason')} > 0", f"{what}: {{{{reason}}}}", quiet=True),
    )


_NOT_BY_THEMSELVES: Final = f'{p.NODES},reason!="ended"'
_GLANCE: Final = (
    Panel(
        title="Reachable",
        help="Whether Prometheus can scrape the scheduler. Programs go on without it, each by itself.",
        kind="stat",
        width=4,
        height=4,
        mapped=(Mapped(0, "No", "red"), Mapped(1, "Yes", "green")),
        queries=(Query(f'up{{job="nvshare",{p.NODES}}}', _NODE),),
    ),
    Panel(
        title="Version",
        help="And whether the scheduling core is compiled or plain Python.",
        kind="stat",
        width=4,
        height=4,
        names_only=True,
        queries=(
            Query(
                f"count by (version, core) (nvshare_build_info{{{p.NODES}}})", "{{version}}, {{core}} core"
            ),
        ),
    ),
    Panel(
        title="Running for",
        help="Since the daemon's last start.",
        kind="stat",
        unit="s",
        width=4,
        height=4,
        queries=(Query(f"time() - nvshare_process_start_time_seconds{{{p.NODES}}}", _NODE),),
    ),
    Panel(
        title="Scheduling",
        help="Off: all pods run at once and no compute quota holds (`nvshare ctl off`).",
        kind="stat",
        width=4,
        height=4,
        mapped=(Mapped(0, "Off", "orange"), Mapped(1, "On", "green")),
        queries=(Query(f"nvshare_scheduler_on{{{p.NODES}}}", _NODE),),
    ),
    Panel(
        title="Faults of its own",
        help="In the time shown: audits that found a difference, events out of order, callbacks that raised."
        " Each is a bug in nvshare: report it.",
        kind="stat",
        width=4,
        height=4,
        decimals=0,
        steps=((0, "green"), (1, "red")),
        queries=(
            Query(
                f"{_changes('nvshare_scheduler_books_wrong_total')}"
                f" + {_changes('nvshare_scheduler_clock_went_back_total')}"
                f" + {_changes('nvshare_scheduler_callback_errors_total')}",
                _NODE,
            ),
        ),
    ),
    Panel(
        title="Could not be saved",
        help="In the time shown: checkpoints and entries of the journal that could not be written. After a"
        " crash what they held would be missing; look at the disk.",
        kind="stat",
        width=4,
        height=4,
        decimals=0,
        steps=((0, "green"), (1, "red")),
        queries=(
            Query(
                f"{_changes('nvshare_checkpoints_failed_total')}"
                f" + {_changes('nvshare_journal_failed_total')}",
                _NODE,
            ),
        ),
    ),
)

_SOURCES: Final = (
    Panel(
        title="What answers",
        help="The scheduler, NVML, and each GPU by its UUID. While NVML is away its figures are missing, and"
        " scheduling goes on.",
        kind="state-timeline",
        mapped=(Mapped(0, "Does not answer", "red"), Mapped(1, "Answers", "green")),
        queries=(Query(f"nvshare_source_up{{{p.NODES}}}", "{{instance}} {{source}}"),),
    ),
    Panel(
        title="Age of figures",
        help="How old what each source said was when it was scraped. Steadily growing: the source hangs.",
        unit="s",
        queries=(
            Query(_age('source!~"(GPU|MIG)-.+"', "instance, source"), "{{instance}} {{source}}"),
            Query(_age('source=~"(GPU|MIG)-.+"', "instance"), "{{instance}} slowest GPU"),
        ),
    ),
)

_SPEED: Final = (
    Panel(
        title="Delays of the event loop",
        help="99th percentiles: how late timers were, and how long one step held up all others. Turns are"
        " handed over late by as much. Much more than milliseconds: the machine is short of CPU time.",
        unit="s",
        queries=(
            Query(
                p.quantile(0.99, "nvshare_event_loop_lag_seconds", p.NODES, "instance"), "{{instance}} late"
            ),
            Query(
                p.quantile(0.99, "nvshare_event_loop_callback_seconds", p.NODES, "instance"),
                "{{instance}} longest step",
            ),
        ),
    ),
    Panel(
        title="Time the daemon did not run",
        help="Part of the time in which it was stopped or had no CPU time. Nobody is billed for it. Zero on a"
        " healthy node.",
        unit="percentunit",
        queries=(Query(p.rate("nvshare_scheduler_standstill_seconds_total", p.NODES, "instance"), _NODE),),
    ),
)

_CLIENTS: Final = (
    Panel(
        title="Processes connected",
        help="And those of a former daemon that have not come back yet after its restart.",
        width=8,
        queries=(
            Query(f"nvshare_scheduler_clients{{{p.NODES}}}", "{{instance}} connected"),
            Query(f"nvshare_scheduler_expected_clients{{{p.NODES}}}", "{{instance}} awaited"),
        ),
    ),
    Panel(
        title="Messages",
        help="Received and sent each second. None at all, although programs are connected: nobody has work.",
        unit="mps",
        width=8,
        queries=(Query(p.rate("nvshare_scheduler_messages_total", p.NODES, "instance"), _NODE),),
    ),
    Panel(
        title="Turned away, cut off, ended",
        help="Refused: connections and messages, by why. Cut off: connections that did not end by themselves."
        " Ended: processes the daemon killed. All zero on a quiet node.",
        width=8,
        decimals=0,
        queries=(
            *_by_reason("nvshare_scheduler_refused_total", p.NODES, "refused"),
            *_by_reason("nvshare_scheduler_client_disconnect_total", _NOT_BY_THEMSELVES, "cut off"),
            *_by_reason("nvshare_clients_killed_total", p.NODES, "ended"),
        ),
    ),
)

_PROCESS: Final = (
    Panel(
        title="CPU",
        help="100 % is one core.",
        unit="percentunit",
        width=8,
        queries=(Query(p.rate("nvshare_process_cpu_seconds_total", p.NODES, "instance"), _NODE),),
    ),
    Panel(
        title="Memory",
        help="Resident memory of the daemon. It should be flat as long as the number of clients is.",
        unit="bytes",
        width=8,
        queries=(Query(f"nvshare_process_resident_memory_bytes{{{p.NODES}}}", _NODE),),
    ),
    Panel(
        title="Descriptors in use",
        help="Open descriptors over those permitted. Near 100 % new programs are refused.",
        unit="percentunit",
        axis_to=1,
        width=8,
        queries=(
            Query(f"nvshare_process_open_fds{{{p.NODES}}} / nvshare_process_max_fds{{{p.NODES}}}", _NODE),
        ),
    ),
)

DAEMON: Final = Dashboard(
    name="daemon",
    title="nvshare: scheduler",
    question="Is nvshare itself well?",
    variables=(Variable("instance", "Node", "label_values(nvshare_build_info, instance)", several=True),),
    sections=(
        Section("At a glance", _GLANCE),
        Section("Where its figures come from", _SOURCES),
        Section("Does it answer in time?", _SPEED),
        Section("Programs that use it", _CLIENTS),
        Section("The process", _PROCESS),
    ),
)
