"""A simulated node's state: the referee of tests that compare what others report."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process on one card."""

    name: str
    pid: int
    slot: int
    contexts: int
    used_bytes: int
    context_bytes: int
    device_bytes: int
    pool_bytes: int
    created_bytes: int
    array_bytes: int
    managed_bytes: int
    resident_bytes: int
    busy_ns: int
    launches: int
    completed_launches: int
    faulted_bytes: int
    evicted_bytes: int
    copied_bytes: int
    attached_ns: int


@dataclass(frozen=True, slots=True)
class CardStatus:
    """One card: what it is, what it did, who is on it."""

    name: str
    uuid: str
    index: int
    now_ns: int
    created_ns: int
    total_bytes: int
    used_bytes: int
    reserved_bytes: int
    resident_bytes: int
    busy_ns: int
    switch_ns: int
    switches: int
    copy_in_ns: int
    copy_out_ns: int
    faulted_bytes: int
    evicted_bytes: int
    energy_mj: int
    lost: int
    pcie_slowdown: int
    ecc_corrected: int
    ecc_uncorrected: int
    xid_count: int
    bandwidth_bytes_per_s: int
    pcie_bytes_per_s: int
    slice_ns: int
    switch_cost_ns: int
    launch_ns: int
    context_bytes: int
    processes: tuple[ProcessStatus, ...]


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One state directory."""

    directory: str
    spec: str
    hang: str
    nvml_down: int
    driver_epoch: int
    cards: tuple[CardStatus, ...]


def _known(kind: type[Any], row: dict[str, Any]) -> dict[str, Any]:
    return {field.name: row[field.name] for field in fields(kind)}


def parse_status(text: str) -> NodeStatus:
    """The state that the driver wrote as JSON."""
    node = json.loads(text)
    cards = []
    for card in node["cards"]:
        processes = tuple(ProcessStatus(**_known(ProcessStatus, row)) for row in card["processes"])
        cards.append(CardStatus(**_known(CardStatus, {**card, "processes": processes})))
    return NodeStatus(**_known(NodeStatus, {**node, "cards": tuple(cards)}))
