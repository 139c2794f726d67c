"""What a row of the catalog is, and the words that rows share."""

from __future__ import annotations

from typing import Final, get_args

from nvshare.core.books.histogram import BOUNDS_NS
from nvshare.metrics.families import Kind, Merge, Metric

GPU: Final = ("gpu_uuid", "gpu_index")
CLIENT: Final = ("namespace", "pod", "client_id", "gpu_uuid")
POD: Final = ("namespace", "pod")
POD_GPU: Final = (*POD, "gpu_uuid")

LOOP_EXPONENTS: Final = tuple(range(14, 31, 2))
"""Of the loop's histograms, which count in powers of two of nanoseconds: 16 us to 1 s."""
WAIT_BOUNDS: Final = tuple(bound / 1e9 for bound in BOUNDS_NS)
LOOP_BOUNDS: Final = tuple((1 << exponent) / 1e9 for exponent in LOOP_EXPONENTS)

FIXED: Final = "fixed"
"""Name, labels and their order are those of the earlier nvshare, for which dashboards and scripts exist."""
OURS: Final = "ours"
NO_ZEROS: Final = "missing, and not 0, while NVML does not answer: a zero would be read as a fact"


class Rows:
    """The rows of one subject: called for each, in the order in which they are shown.

    ``prefix`` begins every name: ours, or none where names are those of others.
    """

    def __init__(self, prefix: str = "nvshare_") -> None:
        self.all: list[Metric] = []
        self._prefix = prefix

    def __call__(
        self,
        name: str,
        labels: tuple[str, ...],
        text: str,
        source: str,
        since: str = OURS,
        kind: Kind | None = None,
        merge: Merge = "same",
        bounds: tuple[float, ...] = (),
        note: str = "",
        figure: str = "",
    ) -> Metric:
        kind = kind or ("counter" if name.endswith("_total") else "histogram" if bounds else "gauge")
        assert kind in get_args(Kind), kind
        assert name.startswith(self._prefix), name
        metric = Metric(
            name=name,
            kind=kind,
            labels=labels,
            help=text,
            source=source,
            since=since,
            bounds=bounds,
            merge=merge,
            ratio=bool(self._prefix) and name.endswith("_ratio"),
            note=note,
            figure=figure,
        )
        self.all.append(metric)
        return metric
