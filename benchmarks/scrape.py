"""What a scrape costs: beside prometheus-client, beside no scraping at all, and in memory.

Interleaved runs, medians, CPU time where the machine's load would show. Ratios last from one machine to
the next.

How long callbacks hold the loop is judged by those of scrapes alone: the 99th percentile over every step of
every scrape, snapshots included. They are counted by powers of two of nanoseconds; where in its bucket the
percentile lies is taken to be in proportion, as Prometheus does. Among tens of thousands of messages a few
hundred steps would not be seen; the percentile of all callbacks and the longest step are shown beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.lock_cycles.servers import GPUS, Server, daemon, measure, rss_bytes, what_to_build
from nvshare.metrics.exposition import Exposition
from nvshare.metrics.families import Family, Sample
from nvshare.metrics.scheduler import SCHEDULER
from nvshare.sim.gpu import SimulatedNode, library_directory
from tests.exporters.node import free_port

CLIENTS: Final = 1000
FAMILIES: Final = 20
FASTER_LEAST: Final = 15.0
HANDOVER_MOST: Final = 1.15
CALLBACK_P99_MOST_NS: Final = 1_000_000
RSS_MOST_BYTES: Final = 60_000_000
SCRAPED: Final = 500
EVERY_SEC: Final = 2.0


# ---- rendering ----------------------------------------------------------------------------------


def families() -> list[Family]:
    """20,000 samples as a node with 1000 clients shows them."""
    metrics = [metric for metric in SCHEDULER if metric.name.startswith("nvshare_client_")][:FAMILIES]
    assert len(metrics) == FAMILIES, len(metrics)
    found = []
    for place, metric in enumerate(metrics):
        samples: list[Sample] = []
        for number in range(CLIENTS):
            value = number / 997 if metric.ratio else number * 1_048_576 + place
            samples.append((tuple(_label(label, number) for label in metric.labels), value))
        found.append(Family(metric, samples))
    return found


def _label(name: str, number: int) -> str:
    values = {
        "namespace": f"team-{number % 20}",
        "pod": f"train-{number:04}",
        "client_id": f"{number * 2654435761:016x}",
        "gpu_uuid": f"GPU-{number % 8:036}",
        "source": "annotation",
    }
    return values.get(name, str(number))


class Theirs:
    """prometheus-client's way for figures that come from elsewhere: a collector that makes families anew."""

    def __init__(self, content: list[Family]) -> None:
        self._content = content
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Any]:
        for metric, samples in self._content:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in samples:
                family.add_metric(labels, value)  # type: ignore[arg-type]
            yield family


def cpu_ms(work: Callable[[], object]) -> float:
    start_ns = time.process_time_ns()
    work()
    return (time.process_time_ns() - start_ns) / 1e6


def rendering(runs: int) -> list[str]:
    content = families()
    exposition, theirs = Exposition(), Theirs(content)

    def ours() -> bytes:
        text = "".join([exposition.render(family) for family in content]).encode()
        exposition.end_scrape()
        return text

    mine, other = ours().decode(), generate_latest(theirs.registry).decode()
    assert _parsed(mine) == _parsed(other), "both say the same"
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(runs):
        times["ours"].append(cpu_ms(ours))
        times["theirs"].append(cpu_ms(lambda: generate_latest(theirs.registry)))
    fast, slow = (statistics.median(found) for found in times.values())
    count = sum(len(list(family.samples)) for family in content)
    print(f"{count} samples, {len(mine)} bytes: ours {fast:.1f} ms, prometheus-client {slow:.1f} ms of CPU")
    return judge("rendering, times faster", slow / fast, FASTER_LEAST, at_least=True)


def _parsed(text: str) -> dict[str, list[tuple[str, float]]]:
    """By family, each sample's labels and value; ratios as far as we show them."""
    return {
        family.name: sorted((str(sorted(s.labels.items())), round(s.value, 4)) for s in family.samples)
        for family in text_string_to_metric_families(text)
    }


# ---- a node that is scraped ----------------------------------------------------------------------


class Scraper:
    """Scrapes every two seconds, from a thread of ours, while it is switched on."""

    def __init__(self, port: int) -> None:
        self.scrapes = 0
        self.bytes = 0
        self.on = threading.Event()
        self._port = port
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def scrape(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
        connection.request("GET", "/metrics")
        self.bytes = len(connection.getresponse().read())
        connection.close()
        self.scrapes += 1

    def _run(self) -> None:
        while True:
            self.on.wait()
            start = time.monotonic()
            with contextlib.suppress(OSError):  # the node may end before us
                self.scrape()
            time.sleep(max(0.0, EVERY_SEC - (time.monotonic() - start)))


class Held:
    """How long callbacks have held the loop while it was watched, by powers of two of nanoseconds."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._counts: list[int] = []
        self._before: list[int] = []
        self.longest_ns = 0

    def begin(self, counters: dict[str, Any]) -> None:
        self._before = counters[self._kind]["buckets_log2_ns"]

    def end(self, counters: dict[str, Any]) -> None:
        after = counters[self._kind]["buckets_log2_ns"]
        self.longest_ns = counters[self._kind]["longest_ns"]
        counts = self._counts or [0] * len(after)
        self._counts = [n + now - then for n, now, then in zip(counts, after, self._before, strict=True)]

    @property
    def count(self) -> int:
        return sum(self._counts)

    def p99_ns(self) -> float:
        """In proportion within its bucket, which ends at a power of two."""
        rank, seen = 0.99 * self.count, 0
        for exponent, count in enumerate(self._counts):
            if count and seen + count >= rank:
                return (1 << exponent) / 2 * (1 + (rank - seen) / count)
            seen += count
        return 0


def counters_of(server: Server) -> dict[str, Any]:
    from benchmarks.lock_cycles.__main__ import ask

    found: Any = ask(server, "GET", "/v1/status")["counters"]
    return dict(found)


def scraped_node(pairs: int, length_ms: int) -> list[str]:
    port = free_port()
    settings = {"NVSHARE_METRICS_ENABLE": "1", "NVSHARE_METRICS_ADDR": f"127.0.0.1:{port}"}
    found: dict[bool, list[float]] = {True: [], False: []}
    steps, whole = Held("scrape_steps"), Held("callbacks")
    with tempfile.TemporaryDirectory() as name, daemon(Path(name), **settings) as server:
        scraper = Scraper(port)
        for _ in range(pairs):
            for scraping in (True, False):
                (scraper.on.set if scraping else scraper.on.clear)()
                if scraping:
                    before = counters_of(server)
                    steps.begin(before)
                    whole.begin(before)
                found[scraping].append(measure(server, SCRAPED, length_ms).handover_p50_us)
                if scraping:
                    after = counters_of(server)
                    steps.end(after)
                    whole.end(after)
        scraper.on.clear()
    ratio = statistics.median(a / b for a, b in zip(found[True], found[False], strict=True))
    print(
        f"{SCRAPED} clients, {scraper.scrapes} scrapes of {scraper.bytes} bytes: hand-over p50"
        f" {statistics.median(found[True]):.0f} us scraped, {statistics.median(found[False]):.0f} us not"
    )
    print(
        f"  {whole.count} callbacks, p99 {whole.p99_ns() / 1e6:.2f} ms; {steps.count} of them are steps of"
        f" scrapes, the longest {steps.longest_ns / 1e6:.2f} ms"
    )
    missed = judge(f"hand-over beside no scraping, {pairs} pairs", ratio, HANDOVER_MOST)
    if not steps.count:
        return [*missed, "no step of a scrape was seen"]
    return missed + judge("scrape step p99, ms", steps.p99_ns() / 1e6, CALLBACK_P99_MOST_NS / 1e6)


def memory(length_ms: int) -> list[str]:
    """8 GPUs with 16 tenants each, NVML answering, scraped."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        sim = Path(name) / "sim"
        SimulatedNode(sim, f"a800:{GPUS}").close()
        settings = {
            "NVSHARE_METRICS_ENABLE": "1",
            "NVSHARE_METRICS_ADDR": f"127.0.0.1:{port}",
            "NVSHARE_SIM": f"a800:{GPUS}",
            "NVSHARE_SIM_DIR": str(sim),
            "LD_LIBRARY_PATH": str(library_directory()),
        }
        with daemon(Path(name), **settings) as server:
            scraper = Scraper(port)
            scraper.on.set()
            measure(server, GPUS * 16, length_ms)
            rss = rss_bytes(server.pid)
    return judge(f"RSS of {GPUS} GPUs x 16 tenants, MB", rss / 1e6, RSS_MOST_BYTES / 1e6)


def judge(name: str, value: float, goal: float, at_least: bool = False) -> list[str]:
    met = value >= goal if at_least else value <= goal
    print(f"  {name}: {value:.2f} (goal {'>=' if at_least else '<='} {goal:g}) {'met' if met else 'MISSED'}")
    return [] if met else [f"{name} {value:.2f}"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--length-ms", type=int, default=3000)
    arguments = parser.parse_args()
    if not (
        1 <= arguments.runs <= 100 and 1 <= arguments.pairs <= 100 and 10 <= arguments.length_ms <= 600_000
    ):
        print("accepted: 1 to 100 runs and pairs, of 10 to 600000 ms", file=sys.stderr)
        return 2
    unbuilt = what_to_build("load")
    if unbuilt:
        print(unbuilt, file=sys.stderr)
        return 2
    missed = rendering(arguments.runs)
    missed += scraped_node(arguments.pairs, arguments.length_ms)
    missed += memory(arguments.length_ms)
    print("all goals met" if not missed else "missed: " + "; ".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
