"""The exporters of one port. Each file of the port's package registers its own; nobody keeps a list.

An exporter is named after its file. Each executor makes its own, because some remember what they showed last.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from nvshare.exporters.steps import Families
from nvshare.metrics.catalog import Catalog

View = TypeVar("View")
Export = Callable[[View], Families]


class Exporter(NamedTuple, Generic[View]):
    name: str
    export: Export[View]
    in_thread: bool  # waits for the kernel, so it runs beside the event loop


class Registry(Generic[View]):
    def __init__(self, package: str, catalog: Catalog) -> None:
        self.package = package
        self.catalog = catalog
        self._makers: dict[str, tuple[Callable[[], Export[View]], bool]] = {}

    def register(self, module: str, make: Callable[[], Export[View]], in_thread: bool = False) -> None:
        """Called by a file of the package with its ``__name__``."""
        name = module.rpartition(".")[2]
        assert name not in self._makers, f"two exporters are called {name}"
        self._makers[name] = (make, in_thread)

    def exporters(self) -> Iterator[Exporter[View]]:
        """A new set of them, in the order of their names; imports all files of the package."""
        path = importlib.import_module(self.package).__path__
        for module in pkgutil.iter_modules(path):
            importlib.import_module(f"{self.package}.{module.name}")
        for name, (make, in_thread) in sorted(self._makers.items()):
            yield Exporter(name, make(), in_thread)
