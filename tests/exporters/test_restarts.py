"""Totals of pods that are at work while their daemon ends, or is killed, and comes back."""

from __future__ import annotations

import itertools
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.exporters.node import MetricsNode, Pod, Scrape, metrics_node
from tests.exporters.test_truth import busy_sec, occupied
from tests.noise import despite_noise

MATRIX = 6000
LOST_SEC = {"occupied": 0.2, "billed": 0.02, "entitled": 0.02, "throttled": 1.0}
"""By a crash: processes tell what they did, but nobody what NVML had made of it since the checkpoint."""


class Seen(NamedTuple):
    at_sec: float
    totals: dict[tuple[str, str], float]


def see(scrape: Scrape, pods: list[Pod]) -> Seen:
    totals = {
        (pod.name, what): scrape.value(f"nvshare_pod_gpu_{what}_seconds_total", pod=pod.name)
        for pod in pods
        for what in LOST_SEC
    }
    return Seen(time.monotonic(), totals)


def seen_again(node: MetricsNode, pods: list[Pod]) -> Seen:
    """By the first scrape that shows all pods."""
    name = "nvshare_pod_gpu_occupied_seconds_total"
    return see(node.wait_scrape(lambda s: all(s.of(name, pod=pod.name) for pod in pods)), pods)


def restart(node: MetricsNode, crash: bool) -> float:
    """For how long there was no daemon, in seconds."""
    began = time.monotonic()
    if crash:
        node.daemon.kill()
    else:
        assert node.daemon.stop() == 0
    time.sleep(0.3)  # programs go on meanwhile
    node.daemon.start()
    return time.monotonic() - began


@pytest.mark.parametrize("crash", [False, True])
def test_totals_go_on_over_restarts(place: Path, crash: bool) -> None:
    """They neither fall nor rise by more than the time that has passed, and the driver counts as much.

    But for the time in which there is no daemon and both are let go, because it said that it ends: then each
    counts what it had on the card, and the card's time is divided between them.
    """
    attempts = itertools.count()
    despite_noise(lambda: check_totals(place / f"attempt-{next(attempts)}", crash))


def check_totals(place: Path, crash: bool) -> None:
    place.mkdir()
    with metrics_node(place, NVSHARE_METRICS_NVML_INTERVAL_MS="1000") as node:  # as it is by default
        node.daemon._options["prefix"] = []  # executed, so that a restart takes as long as an installation's
        pods = []
        for percent in (30, 50):
            node.daemon.set_quota(f"p{percent}", core_percent=percent)
            pods.append(node.pod(f"p{percent}", size=MATRIX))
        away_sec = 0.0
        history = [see(node.wait_scrape(lambda s: min(occupied(s, pods)) > 0.5), pods)]
        for _ in range(3):
            # Clients are back within the first checkpoint's second, and in the second one.
            node.daemon.wait_status(lambda status: status["checkpoints_written"] >= 2)
            time.sleep(0.5)
            history.append(see(node.scrape(), pods))
            away_sec += restart(node, crash)
            history.append(seen_again(node, pods))
        for before, after in pairwise(history):
            passed_sec = after.at_sec - before.at_sec + 0.3  # a scrape is of a moment before it is read
            for key, value in after.totals.items():
                rise_sec = value - before.totals[key]
                least_sec = -LOST_SEC[key[1]] if crash else -0.02
                assert least_sec <= rise_sec <= passed_sec, (key, rise_sec, passed_sec)
        earlier, ours, later = busy_sec(node, pods), occupied(node.scrape(), pods), busy_sec(node, pods)
        for least_sec, counted_sec, most_sec in zip(earlier, ours, later, strict=True):
            assert 0.9 * least_sec <= counted_sec <= 1.1 * most_sec + (0 if crash else away_sec)
        for pod in pods:
            assert history[-1].totals[pod.name, "occupied"] > history[0].totals[pod.name, "occupied"] + 0.5
