"""The double as its users hold it: in a thread and as a process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nvshare.sim.kube_api import CommandError, Fault, Handle, KubeApi, KubeApiProcess, Point, pod
from tests.sim.kube_api.asking import MERGE, asker_of

pytestmark = pytest.mark.slow

PODS = "/api/v1/pods"


@pytest.fixture(params=[KubeApi, KubeApiProcess])
def api(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Handle]:
    with request.param(tmp_path / "api") as handle:
        yield handle


def test_what_one_makes_the_other_sees(api: Handle) -> None:
    asker = asker_of(api)
    api.create("pods", pod("p0", node="n1"))
    listed = asker.ask("GET", PODS).body
    assert [item["metadata"]["name"] for item in listed["items"]] == ["p0"]
    with asker.watching(PODS, resourceVersion=listed["metadata"]["resourceVersion"]) as events:
        api.annotate("p0", gpu_core_limit="30")
        event = next(events)
        assert event["type"] == "MODIFIED"
        assert event["object"]["metadata"]["annotations"] == {"nvshare.com/gpu-core-limit": "30"}
        change = {"metadata": {"annotations": {"nvshare.com/gpu-core-limit": None}}}
        asker.ask("PATCH", "/api/v1/namespaces/default/pods/p0", change, content_type=MERGE)
        assert "annotations" not in next(events)["object"]["metadata"]
    assert "annotations" not in api.get("pods", "p0")["metadata"]


def test_nobody_listens_while_it_refuses_and_the_port_stays_its_own(api: Handle) -> None:
    asker = asker_of(api)
    api.fault(Point.ACCEPT, Fault.REFUSE)
    with pytest.raises(ConnectionRefusedError):
        asker.ask("GET", PODS)
    api.clear_faults()
    assert asker.ask("GET", PODS).status == 200


def test_a_bad_command_names_what_is_accepted(api: Handle) -> None:
    with pytest.raises(CommandError, match=r"no command 'fly'; there are: .*create"):
        api.do("fly")
    with pytest.raises(CommandError, match="no resource 'dogs'; there are: pods, nodes"):
        api.get("dogs", "rex")
    with pytest.raises(CommandError, match="fault 410 is impossible at accept; possible: refuse, hang"):
        api.fault(Point.ACCEPT, Fault.GONE)
    with pytest.raises(CommandError, match='pods "ghost" not found'):
        api.get("pods", "ghost")


def test_a_rotated_token_changes_the_files_as_a_whole(api: Handle, tmp_path: Path) -> None:
    mounted = tmp_path / "serviceaccount"
    environment = api.service_account(mounted)
    assert environment == {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
    former = (mounted / "token").read_text()
    assert asker_of(api, former).ask("GET", PODS).status == 200
    api.service_account(mounted, token=api.new_token())
    assert asker_of(api, former).ask("GET", PODS).status == 401
    assert asker_of(api, (mounted / "token").read_text()).ask("GET", PODS).status == 200
    assert (mounted / "ca.crt").read_bytes() == api.ca_path.read_bytes()
    assert len([path for path in mounted.iterdir() if path.is_dir() and not path.is_symlink()]) == 1


def test_the_kubeconfig_is_private_and_leads_to_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with KubeApi(Path("here")) as api:
        path = api.kubeconfig()
        assert path.stat().st_mode & 0o777 == 0o600
        assert json.loads(path.read_text())["clusters"][0]["cluster"] == {
            "server": api.url,
            "certificate-authority": str(tmp_path / "here" / "ca.crt"),
        }
