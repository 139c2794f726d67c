"""The frame of a daemon: logs, event loop, signals, settings read again, exit codes.

A daemon derives ``Service`` and fills in what it serves. ``run`` does the rest, in this order:

1. ``prepare``, before there is an event loop: locks and directories.
2. ``start``, on the loop: from its end on somebody may be answered.
3. ``started``, after signals are handled and the interpreter is tuned: timers, and the line in the log.
4. SIGTERM or SIGINT: ``stop``. SIGHUP: the settings are read in a thread, and ``apply`` takes them.
"""

from __future__ import annotations

import abc
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from typing import Any, Final, Generic

import uvloop

from nvshare.runtime import logs
from nvshare.runtime.daemon_threads import DaemonThreads
from nvshare.runtime.errors import InUse, StartError
from nvshare.runtime.reload import Reloader
from nvshare.runtime.settings import ConfigT, as_far_as_live, changed_live, needs_restart

EXIT_OK: Final = 0
EXIT_BAD_INPUT: Final = 2
EXIT_IN_USE: Final = 4
LAST_LINES_SEC: Final = 0.5
_SWITCH_INTERVAL_SEC: Final = 0.0005
_GC_THRESHOLD: Final = (20_000, 20, 50)


def tune_interpreter() -> None:
    """Few long pauses: what exists at the start is never collected, and threads give way soon."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLD)
    sys.setswitchinterval(_SWITCH_INTERVAL_SEC)


class Service(abc.ABC, Generic[ConfigT]):
    """``read_config`` reads the settings again; it runs in a thread."""

    def __init__(self, config: ConfigT, read_config: Callable[[], ConfigT]) -> None:
        self.config = config
        self._read_config = read_config

    def prepare(self) -> None:
        """Before the event loop. Raises StartError and InUse."""

    @abc.abstractmethod
    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Raises StartError and InUse."""

    @abc.abstractmethod
    def started(self) -> None:
        """Everything is ready."""

    @abc.abstractmethod
    def stop(self) -> None:
        """A signal ended it; the loop runs no longer than this call."""

    @abc.abstractmethod
    def apply(self) -> None:
        """``config`` has changed."""

    @abc.abstractmethod
    def callback_raised(self, where: str, error: BaseException | None) -> None:
        """An exception left a callback. It is logged and counted, and never ends the daemon."""

    def run(self) -> int:
        """Until a signal ends it; the exit code."""
        handler = logs.start(self.config.log_level, self.config.log_format)
        try:
            self.prepare()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._serve())
        except InUse as error:
            logs.event(logging.ERROR, str(error))
            return EXIT_IN_USE
        except StartError as error:
            logs.event(logging.ERROR, str(error))
            return EXIT_BAD_INPUT
        finally:
            handler.drain(LAST_LINES_SEC)
        return EXIT_OK

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._exception_handler)
        loop.set_default_executor(DaemonThreads())
        ended = asyncio.Event()
        self.start(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        reloader = Reloader(loop, self._read_config, self._take_settings, self._keep_settings)
        loop.add_signal_handler(signal.SIGHUP, reloader.ask)
        for warning in self.config.warnings:
            logs.warning(warning)
        tune_interpreter()
        self.started()
        await ended.wait()
        self.stop()

    def _exception_handler(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.callback_raised(str(context.get("message", "")), context.get("exception"))

    def _take_settings(self, new: ConfigT) -> None:
        for variable in needs_restart(self.config, new):
            logs.warning("setting needs a restart", variable=variable, value=new.text(variable))
        changed = {variable: new.text(variable) for variable in changed_live(self.config, new)}
        self.config = as_far_as_live(self.config, new)
        logs.change(self.config.log_level, self.config.log_format)
        self.apply()
        logs.info("settings reloaded", **changed)

    def _keep_settings(self, error: Exception) -> None:
        logs.event(logging.ERROR, "settings not reloaded: the old ones stay in force", why=error)
