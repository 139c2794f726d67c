"""The double, and beside it a real cluster if one is named: what runs there is deselected otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.sim.kube_api.clusters import REAL, Cluster, double, real


@pytest.fixture(scope="module", params=["double", "cluster"])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = double(tmp_path_factory.mktemp("api")) if request.param == "double" else real()
    with made as found:
        yield found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if REAL:
        return
    away = [item for item in items if _runs_in_a_cluster(item)]
    items[:] = [item for item in items if not _runs_in_a_cluster(item)]
    config.hook.pytest_deselected(items=away)


def _runs_in_a_cluster(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and call.params.get("cluster") == "cluster"
