"""Pod and container from a cgroup path."""

from __future__ import annotations

import pytest

from nvshare.pods.cgroups import HOST, NESTED_RUNS_MAX, Place, place_of, run_cgroups_of

UID = "0d4a5b6c-1111-2222-3333-444455556666"
UNDER = UID.replace("-", "_")
OTHER = "ffffffff-1111-2222-3333-444455556666"
BOX = "a" * 64


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/pod{UID}/{BOX}",
        f"/kubepods/besteffort/pod{UID}/{BOX}",
        f"/kubepods/burstable/pod{UID}",
        f"/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{BOX}.scope",
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/crio-{BOX}.scope",
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDER}.slice",
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/x.scope",
        f"/../../kubepods-burstable-pod{UNDER}.slice/cri-containerd-{BOX}.scope",
        f"/kubepods/pod{UID}/{BOX}/kubepods/pod{OTHER}/{BOX}",
        f"/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{BOX}.scope/kubepods-pod{OTHER}.slice",
    ],
)
@pytest.mark.parametrize("line", ["0::{}", "4:memory:{}\n3:cpu:/", "9:name=systemd:/\n4:memory:{}"])
def test_the_first_pod_from_the_root(path: str, line: str) -> None:
    assert place_of(line.format(path) + "\n") == Place(pod_uid=UID)


def test_a_static_pods_uid_has_no_dashes() -> None:
    uid = "0123456789abcdef0123456789abcdef"
    assert place_of(f"0::/kubepods/burstable/pod{uid}/{BOX}") == Place(pod_uid=uid)


@pytest.mark.parametrize(
    ("path", "container"),
    [
        (f"/docker/{BOX}", BOX),
        (f"/system.slice/docker-{BOX}.scope", BOX),
        (f"/machine.slice/libpod-{BOX}.scope/container", BOX),
        ("/lxc.payload.web/system.slice", "web"),
        ("/machine.slice/machine-web.scope/payload", "web"),
        ("/machine.slice/systemd-nspawn@web.service/payload", "web"),
        (f"/docker/{BOX}/kubepods/pod{OTHER}", BOX),
        (f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{BOX}.scope", f"user-1000/{BOX}"),
    ],
)
def test_a_container_outside_kubernetes(path: str, container: str) -> None:
    assert place_of(f"0::{path}") == Place(container=container)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/init.scope",
        "/user.slice/user-1000.slice/session-2.scope",
        f"/user.slice/user-1000.slice/user@1000.service/kubepods/pod{OTHER}",
        f"/user.slice/user-1000.slice/user@1000.service/kubepods.slice/kubepods-pod{UNDER}.slice",
        f"/system.slice/pod{OTHER}",
        "/kubepods/podnothing",
        f"/kubepods/xpod{OTHER}",
        f"/docker/{'a' * 63}",
    ],
)
def test_nowhere(path: str) -> None:
    assert place_of(f"0::{path}") == HOST


@pytest.mark.parametrize("separator", ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_only_a_line_feed_ends_a_line(separator: str) -> None:
    """A user may put anything else into the name of a cgroup of his, and so begin a line of his own."""
    home = "0::/user.slice/user-1000.slice/user@1000.service"
    forged = f"{home}/x{separator}0::/kubepods/pod{OTHER}"
    assert place_of(f"{forged}/{BOX}\n") == Place(container=f"user-1000/{BOX}")
    assert place_of(f"{forged}\n") == HOST
    assert run_cgroups_of(f"{home}/x{separator}0::/nvshare-run-1-2\n") == (
        f":/user.slice/user-1000.slice/user@1000.service/x{separator}0::/nvshare-run-1-2",
    )


def test_nonsense_is_nowhere() -> None:
    assert place_of("") == HOST
    assert place_of("nothing\n:\n1:2") == HOST


def test_cgroups_of_runs_innermost_first_with_their_whole_path() -> None:
    text = "6:freezer:/box/nvshare-run-1-2/deep/nvshare-run-3-4/x\n4:memory:/\n0::/nvshare-run-5-6\n"
    assert run_cgroups_of(text) == (
        "freezer:/box/nvshare-run-1-2/deep/nvshare-run-3-4",
        "freezer:/box/nvshare-run-1-2",
        ":/nvshare-run-5-6",
    )
    assert run_cgroups_of("0::/my-nvshare-run-1-2\n") == ()
    assert len(run_cgroups_of("0::" + "/nvshare-run-1" * 100)) == NESTED_RUNS_MAX
