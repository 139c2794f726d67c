"""The smallest daemon: a setting, a metric, signals. The tests run it; a new daemon can begin like this."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from nvshare.core.settings import IntegerRange
from nvshare.runtime import logs
from nvshare.runtime.endpoints import Endpoints, HttpPort
from nvshare.runtime.errors import InUse, StartError
from nvshare.runtime.listener import AcceptBounds
from nvshare.runtime.service import Service
from nvshare.runtime.settings import LOG_SETTINGS, Address, Config, Setting, SettingTable

ROWS = (
    *LOG_SETTINGS,
    Setting("NVSHARE_SMALL_ADDR", "127.0.0.1:9", Address(), "address that metrics are served on"),
    Setting("NVSHARE_SMALL_SIZE", "1", IntegerRange(1, 9, "pieces"), "how small it is", live=True),
)
TABLE = SettingTable(ROWS)


@dataclass
class Counters:
    events: Counter[str]
    exhausted_ns: int = -1


class SmallDaemon(Service[Config]):
    _port: HttpPort

    def prepare(self) -> None:
        if "SMALL_IN_USE" in os.environ:
            raise InUse("another small daemon runs")

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.config.integer("NVSHARE_SMALL_SIZE") == 9:
            raise StartError("9 is too large to be small")
        app = Endpoints(self._scrape, self._page, lambda: "").app()
        address = self.config.text("NVSHARE_SMALL_ADDR")
        self._port = HttpPort(app, address, "", AcceptBounds(), Counters(Counter()))
        loop.call_later(0.01, self._fail_once)

    def started(self) -> None:
        self._port.start()
        logs.info("small daemon started", address=self._port.address)

    def stop(self) -> None:
        self._port.close()
        logs.info("small daemon ended")

    def apply(self) -> None:
        logs.info("size applied", size=self.config.integer("NVSHARE_SMALL_SIZE"))

    def callback_raised(self, where: str, error: BaseException | None) -> None:
        logs.warning("callback raised", where=where, why=repr(error))

    def _fail_once(self) -> None:
        raise ZeroDivisionError("a bug")

    async def _scrape(self, _openmetrics: bool, _names: frozenset[str]) -> list[bytes]:
        return [f"small_size {self.config.integer('NVSHARE_SMALL_SIZE')}\n".encode()]

    async def _page(self) -> str:
        return "small"


def read_config() -> Config:
    values = TABLE.load({}, os.environ, Path(sys.argv[1]), {})
    return Config(values, tuple(TABLE.unknown_variables(os.environ)), TABLE.fixed)


if __name__ == "__main__":
    sys.exit(SmallDaemon(read_config(), read_config).run())
