"""The Python side of simulated GPUs: their state as the driver counts it, and faults on demand."""

from nvshare.sim.gpu.library import (
    LibraryMissingError,
    SimulatedNode,
    SimulatorError,
    check_cards,
    library_directory,
)
from nvshare.sim.gpu.status import CardStatus, NodeStatus, ProcessStatus

__all__ = [
    "CardStatus",
    "LibraryMissingError",
    "NodeStatus",
    "ProcessStatus",
    "SimulatedNode",
    "SimulatorError",
    "check_cards",
    "library_directory",
]
