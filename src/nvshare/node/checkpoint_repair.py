"""Which rows of a checkpoint can be used.

A checksum shows that a file is as it was written, but not that we wrote it, or that its daemon knew what this
one knows. So each row is checked by itself. An unusable row is left out and reported: its client registers
afresh, its limit is set anew. The other rows are tried on a core that serves nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from nvshare.core.account import WHOLE
from nvshare.core.books.pod_figures import PodTotals
from nvshare.core.limit_sources import DEFAULT, PodLimitSources
from nvshare.node.bounds import FIGURE_MAX
from nvshare.node.member import NO_CLIENT
from nvshare.pods.peer import UNKNOWN_UID
from nvshare.pods.tenancy import RUNS_MAX, Run
from nvshare.pods.tenant_name import TenantName

PID_MAX: Final = 1 << 22
UID_MAX: Final = (1 << 32) - 1
_UNSIGNED_MAX: Final = (1 << 64) - 1
_NAME_MAX: Final = 256
CLIENTS_MAX: Final = 65_536
_COUNTERS: Final = frozenset(
    (
        *("gpu_time_ns", "billed_ns", "wait_counts", "wait_sum_ns"),
        *("disputes", "claims_cut", "false_holds", "late_drains", "overlap_ns"),
    )
)


class SavedClient(msgspec.Struct, frozen=True):
    client: int
    pid: int
    start_ticks: int
    uid: int
    in_pod: bool
    pod: str
    gpu: str
    epoch: int
    billed_busy_ns: int
    worked_ns: int = -1
    heard_ns: int = 0
    excess_ns: int = 0
    part_permille: int = 1000
    may_have_bytes: int = -1
    """Of its pod's memory; -1: unknown."""
    memory_bytes: int = 0
    owner: str = ""
    image: str = ""


LimitRow = tuple[str, str, int | None, int | None, bool | None]
LagRow = tuple[str, str, int]
RunRow = tuple[int, int, Run]
DepartedRow = tuple[str, str, PodTotals]
PresentRow = tuple[str, str, PodTotals, int]  # the last: the rate it is entitled to
StatedRow = tuple[int | None, int | None, bool | None]
KubernetesPodRow = tuple[str, str, str, StatedRow, bool, str]
"""UID, namespace, name, what its annotations state, whether it is gone, its UID in the API."""
NamespaceRow = tuple[str, StatedRow, StatedRow]  # name, defaults, ceilings
BadValueRow = tuple[str, str, tuple[str, ...]]
"""UID of a pod or key of a namespace, annotation, values that were told."""


class KubernetesRows(NamedTuple):
    """What is known of pods and namespaces."""

    pods: list[KubernetesPodRow]
    namespaces: list[NamespaceRow]
    bad_values: list[BadValueRow]


NO_KUBERNETES_ROWS: Final = KubernetesRows([], [], [])


FIGURES: Final = {
    "billed_busy_ns": (-FIGURE_MAX, FIGURE_MAX),
    "worked_ns": (-FIGURE_MAX, FIGURE_MAX),
    "heard_ns": (-FIGURE_MAX, FIGURE_MAX),
    "excess_ns": (-FIGURE_MAX, FIGURE_MAX),
    "part_permille": (0, 1000),
    "may_have_bytes": (-1, FIGURE_MAX),
    "memory_bytes": (0, FIGURE_MAX),
}
"""The range of each figure of a client. Figures are fitted when written, and checked when read."""


def fit(value: int, least: int = -FIGURE_MAX, most: int = FIGURE_MAX) -> int:
    """Sums of clients' claims may exceed what a file can hold; no client may spoil it for the others."""
    return max(least, min(most, value))


def fit_totals(totals: PodTotals) -> PodTotals:
    figures = totals._asdict()
    counts = tuple(map(fit, figures.pop("wait_counts")))
    fitting = {name: fit(figure, _least(name)) for name, figure in figures.items()}
    return totals._replace(wait_counts=counts, **fitting)


def _least(name: str) -> int:
    return 0 if name in _COUNTERS else -FIGURE_MAX


class BadRow(ValueError):  # noqa: N818 - a finding about a row
    """Why a row cannot be used."""


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadRow(f"{name} {value} is not within {least} to {most}")


def _pod(pod: str) -> None:
    if len(pod) > 2 * _NAME_MAX or TenantName.parse(pod) is None:
        raise BadRow(f"{pod[:_NAME_MAX]!r} is not a pod name")


def _gpu(gpu: str) -> None:
    if not 0 < len(gpu) <= _NAME_MAX:
        raise BadRow(f"{gpu[:_NAME_MAX]!r} is not a GPU")


def _process(pid: int, start_ticks: int) -> None:
    _within("pid", pid, 1, PID_MAX)
    _within("start time", start_ticks, 0, FIGURE_MAX)


def _client(row: SavedClient) -> None:
    _process(row.pid, row.start_ticks)
    _within("client", row.client, 0, _UNSIGNED_MAX)
    if row.client in NO_CLIENT:
        raise BadRow(f"{row.client:016x} is not a client id")
    _within("uid", row.uid, UNKNOWN_UID, UID_MAX)
    _within("epoch", row.epoch, 0, FIGURE_MAX)
    for name, (least, most) in FIGURES.items():
        _within(name, getattr(row, name), least, most)
    _pod(row.pod)
    _gpu(row.gpu)
    if max(len(row.owner), len(row.image)) > _NAME_MAX:
        raise BadRow(f"owner and image are longer than {_NAME_MAX} characters")


def _limit(row: LimitRow) -> None:
    pod, source, memory_bytes, core_percent, share = row
    _pod(pod)
    PodLimitSources().put(source, memory_bytes, core_percent, share)


def _lag(row: LagRow) -> None:
    pod, gpu, lag_ns = row
    _pod(pod)
    _gpu(gpu)
    _within("lag", lag_ns, -FIGURE_MAX, FIGURE_MAX)


def _run(row: RunRow) -> None:
    pid, start_ticks, run = row
    _process(pid, start_ticks)
    _pod(run.pod)


def _totals(row: DepartedRow) -> None:
    pod, gpu, totals = row
    _pod(pod)
    _gpu(gpu)
    for name, figure in zip(totals._fields, totals, strict=True):
        for number in figure if isinstance(figure, tuple) else (figure,):
            _within(name, number, _least(name), FIGURE_MAX)


def _present(row: PresentRow) -> None:
    _totals(row[:3])
    _within("rate", row[3], 0, WHOLE)


def _stated(row: StatedRow) -> None:
    PodLimitSources().put(DEFAULT, *row)


def _kubernetes_pod(row: KubernetesPodRow) -> None:
    uid, namespace, name, stated, _gone, api_uid = row
    _pod(TenantName.of_pod(uid).key)
    if max(map(len, (namespace, name, api_uid))) > _NAME_MAX:
        raise BadRow(f"a name is longer than {_NAME_MAX} characters")
    _stated(stated)


def _namespace(row: NamespaceRow) -> None:
    name, default, ceiling = row
    if len(name) > _NAME_MAX:
        raise BadRow(f"a name is longer than {_NAME_MAX} characters")
    _stated(default)
    _stated(ceiling)


def _bad_value(row: BadValueRow) -> None:
    key, annotation, values = row
    if max(map(len, (key, annotation, *values))) > 2 * _NAME_MAX:
        raise BadRow(f"a name or value is longer than {2 * _NAME_MAX} characters")


class _Kind(NamedTuple):
    type: Any
    check: Callable[[Any], None]
    key: Callable[[Any], object]  # that only one row may have
    most: int


def _first_two(row: tuple[object, ...]) -> object:
    return row[:2]


def _first(row: tuple[object, ...]) -> object:
    return row[0]


KINDS: Final = {
    "clients": _Kind(SavedClient, _client, lambda row: row.client, CLIENTS_MAX),
    "limits": _Kind(LimitRow, _limit, _first_two, CLIENTS_MAX),
    "lags": _Kind(LagRow, _lag, _first_two, CLIENTS_MAX),
    "runs": _Kind(RunRow, _run, _first_two, RUNS_MAX),
    "departed": _Kind(DepartedRow, _totals, _first_two, CLIENTS_MAX),
    "draining": _Kind(str, _gpu, lambda row: row, CLIENTS_MAX),
    "present": _Kind(PresentRow, _present, _first_two, CLIENTS_MAX),
    "kubernetes_pods": _Kind(KubernetesPodRow, _kubernetes_pod, _first, CLIENTS_MAX),
    "namespaces": _Kind(NamespaceRow, _namespace, _first, CLIENTS_MAX),
    "bad_values": _Kind(BadValueRow, _bad_value, _first_two, CLIENTS_MAX),
}


def usable_rows(name: str, rows: list[msgspec.Raw], complaints: list[str]) -> list[Any]:
    """The usable rows of one kind; for the others it records why."""
    kind = KINDS[name]
    found: dict[object, Any] = {}
    for number, raw in enumerate(rows):
        try:
            if number >= kind.most:
                raise BadRow(f"there are more than {kind.most}")
            row = msgspec.json.decode(raw, type=kind.type)
            kind.check(row)
            key = kind.key(row)
            if key in found:
                raise BadRow(f"{key!r} is there twice")
            found[key] = row
        except (msgspec.MsgspecError, ValueError) as error:
            complaints.append(f"{name}: {error}")
    return list(found.values())
