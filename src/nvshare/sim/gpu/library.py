"""Calls into the simulated driver: the few functions it exports beside NVML."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Final

from nvshare.runtime.libraries import simulated_driver_places
from nvshare.sim.gpu.status import NodeStatus, parse_status

NVML_NAME: Final = "libnvidia-ml.so.1"
_ERROR_BYTES: Final = 1024
_FIRST_STATUS_BYTES: Final = 1 << 16


class SimulatorError(Exception):
    """The simulated driver refused; the text says what and why."""


class LibraryMissingError(SimulatorError):
    """The simulated driver was not built or not found."""


def library_directory() -> Path:
    """Where the simulated libraries are: $NVSHARE_SIM_LIB, the package, or the repository's build."""
    wanted = os.environ.get("NVSHARE_SIM_LIB")
    places = [Path(wanted)] if wanted else simulated_driver_places()
    for place in places:
        if (place / NVML_NAME).exists():
            return place
    tried = ", ".join(str(place) for place in places)
    raise LibraryMissingError(
        f"no {NVML_NAME} in {tried}: build it with `make -C native/simgpu`, "
        "or set NVSHARE_SIM_LIB to its directory"
    )


def _load() -> ctypes.CDLL:
    library = ctypes.CDLL(str(library_directory() / NVML_NAME))
    library.nvshare_sim_open.restype = library.nvshare_sim_find.restype = ctypes.c_void_p
    library.nvshare_sim_status.restype = ctypes.c_long
    return library


def _opened(function: Any, *names: bytes | None) -> ctypes.c_void_p:
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    opened = function(*names, error, ctypes.c_size_t(_ERROR_BYTES))
    if opened is None:
        raise SimulatorError(error.value.decode(errors="replace"))
    return ctypes.c_void_p(opened)


def check_cards(spec: str) -> None:
    """Whether a text names cards. Raises SimulatorError."""
    error = ctypes.create_string_buffer(_ERROR_BYTES)
    if _load().nvshare_sim_check(os.fsencode(spec), error, ctypes.c_size_t(_ERROR_BYTES)) != 0:
        raise SimulatorError(error.value.decode(errors="replace"))


class SimulatedNode:
    """A state directory and its cards; without arguments those of $NVSHARE_SIM_DIR and $NVSHARE_SIM."""

    def __init__(self, directory: Path | None = None, spec: str | None = None) -> None:
        self._library = _load()
        names = [None if text is None else os.fsencode(text) for text in (directory, spec)]
        self._node = _opened(self._library.nvshare_sim_open, *names)

    @classmethod
    def find(cls, directory: Path | None = None) -> SimulatedNode:
        """One that is there, whatever its cards; nothing is made or changed. Raises SimulatorError."""
        node = cls.__new__(cls)
        node._library = _load()
        name = None if directory is None else os.fsencode(directory)
        node._node = _opened(node._library.nvshare_sim_find, name)
        return node

    def close(self) -> None:
        """Unmap the state. The object is of no use afterwards."""
        self._library.nvshare_sim_close(self._node)

    def status_json(self) -> str:
        """The state as the driver counts it, as JSON text."""
        size = _FIRST_STATUS_BYTES
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = self._library.nvshare_sim_status(self._node, buffer, ctypes.c_size_t(size))
            if length < 0:
                raise SimulatorError("no memory for the state")
            if length < size:
                return buffer.value.decode(errors="replace")
            size = 2 * length

    def status(self) -> NodeStatus:
        """The state as the driver counts it."""
        return parse_status(self.status_json())

    def fault(self, kind: str, target: str | None = None, value: str | None = None) -> None:
        """Make a fault happen, or end it."""
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        texts = [None if text is None else text.encode() for text in (kind, target, value)]
        size = ctypes.c_size_t(_ERROR_BYTES)
        if self._library.nvshare_sim_fault(self._node, *texts, error, size) != 0:
            raise SimulatorError(error.value.decode(errors="replace"))

    def reset(self) -> None:
        """Forget every process, figure and fault; cards and UUIDs stay."""
        self._library.nvshare_sim_reset(self._node)
