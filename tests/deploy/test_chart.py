"""The Helm chart says what the overlays say, and its values change what they are for."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from nvshare import __version__
from tests.deploy.manifests import (
    DAEMON_SETS,
    Json,
    by_key,
    container_of,
    environment_of,
    kubectl,
    overlay,
    pod_of,
    with_components,
)
from tools.build_chart import build

HELM: Final = str(Path(sysconfig.get_path("scripts"), "helm"))
NAMESPACE: Final = "nvshare-system"


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("chart") / "nvshare"
    build(kubectl(), target)
    return target


def helm(*arguments: str, code: int = 0) -> str:
    done = subprocess.run([HELM, *arguments], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def rendered(chart: Path, namespace: str = NAMESPACE, **values: str) -> list[Json]:
    options: list[str] = []
    for name, text in values.items():
        options += ["--set", f"{name.replace('__', '.')}={text}"]
    text = helm("template", "nvshare", str(chart), "--namespace", namespace, *options)
    return [one for one in yaml.safe_load_all(text) if one]


def test_helm_finds_no_fault(chart: Path) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(chart))
    assert f"version: {__version__}" in (chart / "Chart.yaml").read_text()


def test_it_is_the_overlay_for_gpus(chart: Path) -> None:
    assert by_key(rendered(chart, namespace__create="true")) == by_key(overlay("gpu"))


def test_it_is_the_overlay_with_simulated_gpus(chart: Path) -> None:
    found = rendered(chart, namespace__create="true", simulation__enabled="true")
    assert by_key(found) == by_key(overlay("sim"))


def test_it_is_the_overlay_with_components(chart: Path, tmp_path: Path) -> None:
    found = rendered(chart, namespace__create="true", monitoring__enabled="true", runtimeClassName="nvidia")
    assert by_key(found) == by_key(with_components(tmp_path, "gpu", "monitoring", "runtime-class"))


def test_values_reach_their_places(chart: Path) -> None:
    found = rendered(
        chart,
        image__repository="registry.example/nvshare",
        image__tag="9.1.2",
        devicePlugin__virtualDevices="4",
        devicePlugin__allocationPolicy="pack",
        nodeSelector__disk="fast",
    )
    for name in DAEMON_SETS:
        assert container_of(found, name)["image"] == "registry.example/nvshare:9.1.2"
        assert pod_of(found, name)["nodeSelector"] == {"disk": "fast"}
    environment = environment_of(found, "nvshare-device-plugin")
    assert (environment["NVSHARE_VIRTUAL_DEVICES"], environment["NVSHARE_ALLOCATION_POLICY"]) == ("4", "pack")


def test_another_namespace_is_taken_everywhere(chart: Path) -> None:
    found = rendered(chart, namespace="gpus", monitoring__enabled="true")
    assert NAMESPACE not in {one["metadata"].get("namespace") for one in found}
    for one in found:
        if one["kind"] == "ClusterRoleBinding":
            assert [subject["namespace"] for subject in one["subjects"]] == ["gpus"]


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("devicePlugin.virtualDevices=0", "virtualDevices"),
        ("devicePlugin.allocationPolicy=best", "allocationPolicy"),
        ("simulation.cards=many", "cards"),
        ("devicePlugins.virtualDevices=3", "devicePlugins"),
    ],
)
def test_a_bad_value_is_named(chart: Path, setting: str, word: str) -> None:
    assert word in helm("template", "nvshare", str(chart), "--set", setting, code=1)


def test_a_package_can_be_made(chart: Path, tmp_path: Path) -> None:
    helm("package", str(chart), "--destination", str(tmp_path))
    assert (tmp_path / f"nvshare-{__version__}.tgz").is_file()
    assert shutil.which(HELM)


def test_the_schema_knows_every_value(chart: Path) -> None:
    values: Any = yaml.safe_load((chart / "values.yaml").read_text())
    schema: Any = yaml.safe_load((chart / "values.schema.json").read_text())
    assert schema["properties"].keys() - {"global"} == values.keys()
    for name, value in values.items():
        if isinstance(value, dict) and value:
            assert schema["properties"][name]["properties"].keys() == value.keys(), name
