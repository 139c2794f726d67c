"""The device plugin as a daemon: what it watches, what it keeps in place, what it serves."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final

from nvshare.plugin.annotation_setup import node_annotation
from nvshare.plugin.config import Config
from nvshare.plugin.devices import MEANINGS, Change, Devices, Fault
from nvshare.plugin.health import DriverWatch, News, Seen, Silent, Xid
from nvshare.plugin.kubelet import Registrar
from nvshare.plugin.metrics import Figures, families, render
from nvshare.plugin.node_annotation import NodeAnnotation, annotation_text
from nvshare.plugin.node_files import NodeFiles
from nvshare.plugin.pod_resources import Holdings, PodResources
from nvshare.plugin.server import Answers
from nvshare.runtime import logs
from nvshare.runtime.directories import SOCK_DIR_MODE, DirectoryTaken, make, take
from nvshare.runtime.errors import StartError
from nvshare.runtime.service import Service

AGAIN_SEC: Final = 1.0
LOOK_SEC: Final = 0.5
"""How often the node's files and the driver's silence are looked at."""


@dataclass
class _Counters:
    events: Counter[str]
    exhausted_ns: int = -1


class DevicePlugin(Service[Config]):
    def __init__(self, config: Config, read_config: Callable[[], Config]) -> None:
        super().__init__(config, read_config)
        self._devices = Devices(
            config.integer("NVSHARE_VIRTUAL_DEVICES"), config.excluded, config.ignored_xids
        )
        self._driver_up: bool | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._counters = _Counters(Counter())
        self._port: Any = None
        self._annotation: NodeAnnotation | None = None
        self._lock = -1

    def prepare(self) -> None:
        self._files = NodeFiles(self.config)
        os.close(make(self.config.path("NVSHARE_SOCK_DIR"), SOCK_DIR_MODE))
        os.close(make(self.config.path("NVSHARE_PLUGIN_DIR"), SOCK_DIR_MODE))

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        kubelet_dir = self.config.path("NVSHARE_KUBELET_DIR")
        self._pods = PodResources(kubelet_dir, self._held)
        self._answers = Answers(
            self._devices,
            self._files.terms,
            self._files.needed,
            lambda: self.config.policy,
            lambda: self._pods.holdings.devices,
            self._pods.ask_soon,
        )
        self._registrar = Registrar(kubelet_dir, self._answers, lambda: bool(self._devices.gpus()))
        self._annotation = node_annotation(self.config)
        self._watch = DriverWatch(lambda news: _tell(loop, self._heard, news))
        if self.config.switched_on("NVSHARE_METRICS_ENABLE"):
            self._listen()

    def started(self) -> None:
        if self._port is not None:
            self._port.start()
        self._watch.start()
        self._begin(self._run)
        if self._annotation is not None:
            self._begin(self._annotation.run)
        fields = {"metrics": self._port.address} if self._port is not None else {}
        logs.info("device plugin started", pid=os.getpid(), slots=self._devices.slots, **fields)

    def stop(self) -> None:
        self._watch.stop()
        if self._port is not None:
            self._port.close()
        logs.info("device plugin ended")

    def apply(self) -> None:
        """The policy is asked for when it is needed."""

    def callback_raised(self, where: str, error: BaseException | None) -> None:
        self._counters.events["callback_raised"] += 1
        logs.warning("unexpected error", where=where, why=repr(error))

    # ---- what runs ------------------------------------------------------------------------------

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(self._again(work)))

    async def _again(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """What ends by an unexpected error is begun again."""
        while True:
            try:
                return await work()
            except Exception as error:
                self.callback_raised(work.__qualname__, error)
                await asyncio.sleep(AGAIN_SEC)

    async def _run(self) -> None:
        await self._alone()
        while not await asyncio.to_thread(self._files.keep):
            await asyncio.sleep(LOOK_SEC)
        for work in (self._pods.run, self._registrar.run, self._look_after):
            self._begin(work)

    async def _look_after(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SEC)
            await asyncio.to_thread(self._files.keep)
            asked = self._watch.hanging()
            if asked is not None:
                self._silent("a call to the driver does not return", [asked] if asked else None)

    async def _alone(self) -> None:
        """Two plugins would take turns at replacing each other. The lock ends with its process."""
        logged = False
        while self._lock < 0:
            try:
                self._lock = take(self.config.path("NVSHARE_PLUGIN_DIR"), SOCK_DIR_MODE)
            except (DirectoryTaken, StartError) as error:
                if not logged:
                    logs.info("waiting for another device plugin to end", why=error)
                logged = True
                await asyncio.sleep(LOOK_SEC / 2)

    # ---- what is heard --------------------------------------------------------------------------

    def _heard(self, news: News) -> None:
        match news:
            case Seen(gpus):
                if self._driver_up is not True and gpus:
                    logs.info("GPUs found", gpus=",".join(gpu.uuid for gpu in gpus))
                elif self._driver_up is not True:
                    logs.warning(
                        "the driver answers, but reports no GPU; one is offered as soon as it appears"
                    )
                self._driver_up = True if gpus else self._driver_up or None
                self._changed(self._devices.looked(gpus))
            case Silent(why):
                self._silent(why)
            case Xid(uuid, number):
                changes = self._devices.xid(uuid, number)
                if not changes:
                    logs.info("XID ignored", gpu=uuid, xid=number)
                self._changed(changes)

    def _silent(self, why: str, uuids: Iterable[str] | None = None) -> None:
        if self._driver_up is not False:
            logs.warning("the driver does not answer", why=why)
        self._driver_up = False
        self._changed(self._devices.silent(uuids))

    def _held(self, holdings: Holdings) -> None:
        self._changed(self._devices.given_away(holdings.whole))
        self._annotate()

    def _changed(self, changes: list[Change]) -> None:
        if not changes:
            return
        for change in changes:
            _log(change)
        self._answers.changed()
        self._annotate()

    def _annotate(self) -> None:
        if self._annotation is None:
            return
        gpus = self._devices.gpus()
        faults = {gpu.uuid: self._devices.faults(gpu.uuid) for gpu in gpus}
        if gpus and self._pods.up is not None:
            by_gpu = self._pods.holdings.by_gpu
            self._annotation.want(annotation_text(gpus, self._devices.slots, faults, by_gpu))

    # ---- metrics --------------------------------------------------------------------------------

    def _listen(self) -> None:
        from nvshare.runtime.endpoints import Endpoints, HttpPort  # HTTP takes 5 MB
        from nvshare.runtime.listener import AcceptBounds

        app = Endpoints(self._scrape, self._page, self._registrar.unready).app()
        address = self.config.text("NVSHARE_METRICS_ADDR")
        web_config = self.config.text("NVSHARE_METRICS_WEB_CONFIG_FILE")
        try:
            self._port = HttpPort(app, address, web_config, AcceptBounds(), self._counters)
        except OSError as error:
            raise StartError(f"NVSHARE_METRICS_ADDR={address!r} cannot be listened on: {error}") from error

    def _figures(self) -> Figures:
        sources = {"nvml": self._driver_up is True, "pod_resources": self._pods.up is True}
        if self._annotation is not None:
            sources["kubernetes"] = self._annotation.up
        return Figures(
            holdings=self._pods.holdings,
            registered=not self._registrar.unready(),
            registrations=self._registrar.results,
            allocations=self._answers.results,
            held_starts=self._answers.held_starts,
            files_placed=self._files.results,
            annotation_writes=self._annotation.results if self._annotation is not None else {},
            sources=sources,
            callback_errors=self._counters.events["callback_raised"],
        )

    async def _scrape(self, openmetrics: bool, names: frozenset[str]) -> list[bytes]:
        return render(families(self._devices, self._figures()), openmetrics, names)

    async def _page(self) -> str:
        return '<!doctype html><title>nvshare device plugin</title><a href="metrics">metrics</a>\n'


def _tell(loop: asyncio.AbstractEventLoop, take: Callable[[News], None], news: News) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(take, news)


def _log(change: Change) -> None:
    gpu, faults = change.gpu, change.faults
    if not faults:
        logs.info("GPU is healthy", gpu=gpu.uuid, index=gpu.index)
        return
    why = "; ".join(MEANINGS[Fault(fault)] for fault in faults)
    detail = {"detail": change.detail} if change.detail else {}
    logs.warning("GPU is unhealthy", gpu=gpu.uuid, index=gpu.index, why=why, **detail)
