"""The workloads' GPU through PyTorch."""

from __future__ import annotations

from collections import deque
from typing import Any

from nvshare.workloads.gpu import OutOfMemoryError


class TorchAdder:
    """z = x + y as the seeds' scripts write it."""

    def __init__(self, torch: Any, n: int) -> None:
        self._torch = torch
        try:
            self._x = torch.ones([n, n], dtype=torch.float32, device="cuda")
            self._y = torch.ones([n, n], dtype=torch.float32, device="cuda")
            self._z = self._x + self._y
        except torch.cuda.OutOfMemoryError as error:
            raise OutOfMemoryError(str(error)) from error
        self._pending: deque[Any] = deque()
        self._passed = 0

    def add(self) -> None:
        try:
            self._z = self._x + self._y
        except self._torch.cuda.OutOfMemoryError as error:
            raise OutOfMemoryError(str(error)) from error

    def mark(self) -> None:
        event = self._torch.cuda.Event()
        event.record()
        self._pending.append(event)

    def passed_marks(self) -> int:
        while self._pending and self._pending[0].query():
            self._pending.popleft()
            self._passed += 1
        return self._passed

    def wait_for_mark(self, number: int) -> None:
        while self._passed < number and self._pending:
            self._pending.popleft().synchronize()
            self._passed += 1

    def synchronize(self) -> None:
        self._torch.cuda.synchronize()

    def close(self) -> None:
        del self._x, self._y, self._z
        self._torch.cuda.empty_cache()


class TorchGpu:
    """Device 0 of PyTorch."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        properties = torch.cuda.get_device_properties(0)
        self.name = f"{properties.name} (PyTorch {torch.__version__})"
        self.total_bytes: int = properties.total_memory

    def adder(self, n: int) -> TorchAdder:
        return TorchAdder(self._torch, n)

    def allocate_and_free(self, size_bytes: int) -> None:
        try:
            block = self._torch.zeros(size_bytes, dtype=self._torch.uint8, device="cuda")
        except self._torch.cuda.OutOfMemoryError as error:
            raise OutOfMemoryError(str(error)) from error
        self._torch.cuda.synchronize()
        del block
        self._torch.cuda.empty_cache()

    def try_allocation(self, size_bytes: int) -> bool:
        try:
            block = self._torch.empty(size_bytes, dtype=self._torch.uint8, device="cuda")
        except self._torch.cuda.OutOfMemoryError:
            return False
        del block
        self._torch.cuda.empty_cache()
        return True
