"""What a workload needs of a GPU. Two ways to get it: PyTorch, or the driver API alone."""

from __future__ import annotations

from typing import Protocol


class OutOfMemoryError(Exception):
    """The GPU, or a quota, refused an allocation."""


class GpuError(Exception):
    """Any other refusal of the driver; the text names the call and the code."""


class Adder(Protocol):
    """z = x + y over n x n float32 matrices, again and again, as PyTorch does it: the new z is made while the
    old one lives, so four matrices are alive."""

    def add(self) -> None:
        """Queue one addition."""

    def mark(self) -> None:
        """Queue a mark after the additions so far."""

    def passed_marks(self) -> int:
        """How many marks the GPU has passed."""

    def wait_for_mark(self, number: int) -> None:
        """Return when the GPU has passed that many marks."""

    def synchronize(self) -> None:
        """Return when all is done."""

    def close(self) -> None:
        """Free the matrices."""


class Gpu(Protocol):
    """One device."""

    name: str
    total_bytes: int

    def adder(self, n: int) -> Adder:
        """Allocate the matrices. Raises OutOfMemoryError."""

    def allocate_and_free(self, size_bytes: int) -> None:
        """Allocate, fill, synchronise, free. Raises OutOfMemoryError."""

    def try_allocation(self, size_bytes: int) -> bool:
        """Allocate and free at once, without waiting for the GPU; False when refused."""


def open_gpu() -> Gpu:
    """PyTorch where it can use CUDA, else the driver API."""
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None and torch.cuda.is_available():
        from nvshare.workloads.with_torch import TorchGpu

        return TorchGpu(torch)
    from nvshare.workloads.with_driver import DriverGpu

    return DriverGpu()
