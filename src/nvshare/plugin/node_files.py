"""What the plugin keeps in place on the node: the library, the loader's file, the simulated driver.

Where they are depends on the settings alone, so that what a container was given stays right for its restarts.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nvshare.plugin.allocate import LIBRARY_IN_CONTAINER, Simulation, Terms
from nvshare.plugin.config import Config, simulated_state_dir
from nvshare.plugin.library import Placed, PlaceError, is_in_place, place
from nvshare.runtime import logs
from nvshare.runtime.errors import StartError
from nvshare.runtime.libraries import (
    INTERPOSER,
    SIMULATED_DRIVER_FILES,
    InterposerMissingError,
    interposer_library,
    simulated_driver_places,
)
from nvshare.runtime.paths import SCHEDULER_SOCKET

STATE_FILE_MODE: Final = 0o666
_LOADER_FILE: Final = "ld.so.preload"
_DRIVER_DIR: Final = "simgpu"


def _simulated_driver(environment: Mapping[str, str]) -> Path:
    named = environment.get("NVSHARE_SIM_LIB")
    places = [Path(named)] if named else simulated_driver_places()
    for found in places:
        if all((found / name).is_file() for name in SIMULATED_DRIVER_FILES):
            return found
    tried = ", ".join(map(str, places))
    raise StartError(f"NVSHARE_SIM is set, but the simulated driver is not in {tried}; set NVSHARE_SIM_LIB")


class NodeFiles:
    def __init__(self, config: Config, environment: Mapping[str, str] = os.environ) -> None:
        """Raises StartError if something to bring is not there."""
        self._sock_dir = config.path("NVSHARE_SOCK_DIR")
        self._plugin_dir = config.path("NVSHARE_PLUGIN_DIR")
        self._cdi_kind = config.text("NVSHARE_CDI_KIND")
        self._state_dir = simulated_state_dir(environment)
        self._sources: dict[Path, Path | bytes] = {self._sock_dir / INTERPOSER: _library(config)}
        self._by_file = config.text("NVSHARE_PRELOAD") == "file"
        if self._by_file:
            self._sources[self._plugin_dir / _LOADER_FILE] = f"{LIBRARY_IN_CONTAINER}\n".encode()
        if self._state_dir is not None:
            driver = _simulated_driver(environment)
            for name in SIMULATED_DRIVER_FILES:
                self._sources[self._plugin_dir / _DRIVER_DIR / name] = driver / name
        self._placed: dict[Path, Placed] = {}
        self._problem = ""
        self.results: Counter[str] = Counter({"ok": 0, "failed": 0})

    @property
    def needed(self) -> list[Path]:
        """By each container."""
        return [*self._sources, self._sock_dir / SCHEDULER_SOCKET]

    @property
    def terms(self) -> Terms:
        driver_dir = self._plugin_dir / _DRIVER_DIR
        return Terms(
            sock_dir=str(self._sock_dir),
            cdi_kind=self._cdi_kind,
            loader_file=str(self._plugin_dir / _LOADER_FILE) if self._by_file else "",
            simulation=Simulation(str(driver_dir), str(self._state_dir)) if self._state_dir else None,
        )

    def keep(self) -> bool:
        """Bring what is missing, or is not what was brought; whether all is there now. It reads and writes
        files.
        """
        try:
            for target, source in self._sources.items():
                placed = self._placed.get(target)
                if placed is None or not is_in_place(placed):
                    self._bring(target, source)
        except PlaceError as error:
            self.results["failed"] += 1
            if str(error) != self._problem:
                logs.warning("a file that containers need is missing; it is tried again", why=error)
            self._problem = str(error)
            return False
        if self._state_dir is not None:
            _open_to_all(self._state_dir)
        self._problem = ""
        return True

    def _bring(self, target: Path, source: Path | bytes) -> None:
        try:
            target.parent.mkdir(mode=0o755, exist_ok=True)
        except OSError as error:
            raise PlaceError(f"{target.parent} cannot be made: {error}") from error
        self._placed[target], changed = place(source, target)
        if changed:
            self.results["ok"] += 1
            logs.info("brought to the node", file=target)


def _open_to_all(state_dir: Path) -> None:
    """Pods of any user write to simulated cards, as they do to the device files of real ones.

    The directory stays root's, so no pod can replace a file.
    """
    try:
        for name in os.listdir(state_dir):
            descriptor = os.open(state_dir / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                mode = os.fstat(descriptor).st_mode
                if stat.S_ISREG(mode) and stat.S_IMODE(mode) != STATE_FILE_MODE:
                    os.fchmod(descriptor, STATE_FILE_MODE)
            finally:
                os.close(descriptor)
    except OSError as error:
        logs.warning("simulated cards are only there for pods of our own user", why=error)


def _library(config: Config) -> Path:
    named = config.text("NVSHARE_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise StartError(f"NVSHARE_LIBRARY={named!r} is not a file")
        return Path(named)
    try:
        return interposer_library()
    except InterposerMissingError as error:
        raise StartError(str(error)) from error
