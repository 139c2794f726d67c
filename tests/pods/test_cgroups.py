"""Pod and container from a cgroup path."""

from __future__ import annotations

import pytest

from nvshare.pods.cgroups import HOST, NESTED_RUNS_MAX, Place, node_prefixes, place_of, run_cgroups_of
from nvshare.pods.tenant_name import TenantName

UID = "0d4a5b6c-1111-2222-3333-444455556666"
UNDER = UID.replace("-", "_")
OTHER = "ffffffff-1111-2222-3333-444455556666"
BOX = "a" * 64


STATIC = "0123456789abcdef0123456789abcdef"  # the UID of a static pod is a hash of its manifest
INNER = "b" * 64
FORMS = {
    "cgroupfs": (f"/kubepods/pod{UID}/{BOX}", UID, BOX),
    "cgroupfs, best effort": (f"/kubepods/besteffort/pod{UID}/{BOX}", UID, BOX),
    "cgroupfs, burstable": (f"/kubepods/burstable/pod{UID}/{BOX}", UID, BOX),
    "cgroupfs, the pod itself": (f"/kubepods/burstable/pod{UID}", UID, ""),
    "cgroupfs, static pod": (f"/kubepods/burstable/pod{STATIC}/{BOX}", STATIC, BOX),
    "cgroupfs, kind": (f"/kubelet/kubepods/burstable/pod{UID}/{BOX}", UID, BOX),
    "systemd, docker": (f"/kubepods.slice/kubepods-pod{UNDER}.slice/docker-{BOX}.scope", UID, BOX),
    "systemd, containerd": (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/cri-containerd-{BOX}.scope",
        UID,
        BOX,
    ),
    "systemd, CRI-O": (f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{BOX}.scope", UID, BOX),
    "systemd, CRI-O, a cgroup below": (
        f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{BOX}.scope/container",
        UID,
        BOX,
    ),
    "systemd, CRI-O's monitor": (
        f"/kubepods.slice/kubepods-pod{UNDER}.slice/crio-conmon-{BOX}.scope",
        UID,
        BOX,
    ),
    "systemd, the pod itself": (
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDER}.slice",
        UID,
        "",
    ),
    "systemd, static pod": (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/crio-{BOX}.scope",
        STATIC,
        BOX,
    ),
    "systemd, kind": (
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/cri-containerd-{BOX}.scope",
        UID,
        BOX,
    ),
    "containerd with colons": (
        f"/system.slice/containerd.service/kubepods-burstable-pod{UNDER}.slice:cri-containerd:{BOX}",
        UID,
        BOX,
    ),
    "systemd, a cgroup root of several words": (
        f"/my_root.slice/my_root-a.slice/my_root-a-kubepods.slice/my_root-a-kubepods-pod{UNDER}.slice/crio-{BOX}.scope",
        UID,
        BOX,
    ),
    "cgroupfs, k3s in a container": (f"/k3s/kubepods/besteffort/pod{UID}/{BOX}", UID, BOX),
    "reader in a cgroup namespace, another class": (
        f"/../../../kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{UNDER}.slice/crio-{BOX}.scope",
        UID,
        BOX,
    ),
    "containerd with colons, at the root": (f"/kubepods-pod{UNDER}.slice:cri-containerd:{BOX}", UID, BOX),
    "reader in a cgroup namespace": (
        f"/../../kubepods-burstable-pod{UNDER}.slice/cri-containerd-{BOX}.scope",
        UID,
        BOX,
    ),
    "reader in a cgroup namespace, cgroupfs": (f"/../../../kubepods/burstable/pod{UID}/{BOX}", UID, BOX),
    "reader in a cgroup namespace, beside it": (f"/../../pod{UID}/{BOX}", UID, BOX),
    "reader in a cgroup namespace, kind": (
        f"/../../kubelet-kubepods-burstable-pod{UNDER}.slice/cri-containerd-{BOX}.scope",
        UID,
        BOX,
    ),
    "container in a container": (f"/kubepods/pod{UID}/{BOX}/docker/{INNER}", UID, BOX),
    "imitated pod in a pod": (f"/kubepods/pod{UID}/{BOX}/kubepods/pod{OTHER}/{INNER}", UID, BOX),
    "imitated slice in a pod": (
        f"/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{BOX}.scope/kubepods-pod{OTHER}.slice",
        UID,
        BOX,
    ),
}
"""How the kernel shows a process of a pod: path, UID of the pod, id of the container."""
FILES = {
    "version 2": "0::{}\n",
    "version 1": "4:memory:{0}\n3:cpu,cpuacct:{0}\n",
    "version 1, another controller at the root first": "13:rdma:/\n12:misc:/\n4:memory:{}\n",
    "both versions": "9:name=systemd:/\n4:memory:{0}\n0::/\n",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("file", FILES)
def test_the_first_pod_from_the_root_and_the_container_in_it(form: str, file: str) -> None:
    path, pod_uid, container = FORMS[form]
    assert place_of(FILES[file].format(path)) == Place(pod_uid, container)


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
        ("/user.slice/user-1000.slice/user@1000.service/user-0.slice/machine-x.scope", "user-1000/x"),
        ("/user.slice/user-1000.slice/user.slice/user-7.slice/machine-x.scope", "user-1000/x"),
        ("/user.slice/user-1000.slice/machine-x.scope/user-7.slice/machine-y.scope", "user-1000/x"),
        ("/user.slice/odd/user-7.slice/machine-x.scope", "user/x"),
        ("/user.slice/user-007.slice/machine-x.scope", "user/x"),
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
        f"/system.slice/ci-runner.service/kubepods-pod{UNDER}.slice",
        f"/system.slice/ci-runner.service/kubepods.slice/kubepods-pod{UNDER}.slice",
        f"/system.slice/ci-runner.service/kubepods/pod{UID}",
        f"/system.slice/ci-runner.service/kubepods-pod{UNDER}.slice:cri-containerd:{BOX}",
        f"/../../system.slice/ci-runner.service/kubepods-pod{UNDER}.slice",
        f"/../../ci-runner.service/kubepods/pod{UID}",
        f"/ci/kubepods/burstable/pod{UID}",
        f"/kubepods.slice/kubepods-burstable-pod{UNDER}.slice",
        "/kubepods/podnothing",
        f"/kubepods/xpod{OTHER}",
        f"/docker/{'a' * 63}",
    ],
)
def test_nowhere(path: str) -> None:
    assert place_of(f"0::{path}") == HOST


@pytest.mark.parametrize(
    "prefix",
    [
        f"/docker/{INNER}",
        f"/system.slice/docker-{INNER}.scope",
        "/lxc.payload.node",
        "/my/own-root",
        "/user.slice/x",
    ],
)
@pytest.mark.parametrize(
    "below",
    [
        "/kubepods/burstable/pod{}/{}",
        "/kubelet/kubepods/pod{}/{}",
        "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice/cri-containerd-{}.scope",
        "/kubepods-pod{}.slice:cri-containerd:{}",
    ],
)
def test_a_node_in_a_container_as_a_daemon_in_one_of_its_pods_sees_it(prefix: str, below: str) -> None:
    spelt = (lambda uid: uid.replace("-", "_")) if ".slice" in below else str
    own = f"4:memory:{prefix}{below.format(spelt(OTHER), 'c' * 64)}\n"
    path = prefix + below.format(spelt(UID), BOX)
    prefixes = node_prefixes(own)
    assert place_of(f"4:memory:{path}\n", prefixes) == Place(UID, BOX)
    assert place_of(f"4:memory:{path}\n").pod_uid == "", "others do not know the node"
    beside = f"/docker/{'d' * 64}" + below.format(spelt(UID), BOX)
    assert place_of(f"4:memory:{beside}\n", prefixes) == Place(container="d" * 64), "an imitation"
    assert node_prefixes(f"0::{below.format(spelt(OTHER), 'c' * 64)}\n") in ((), ("/kubelet",))
    assert node_prefixes("0::/system.slice/nvshare.service\n4:memory:/\n") == ()


@pytest.mark.parametrize("separator", ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\r"])
def test_only_a_line_feed_ends_a_line(separator: str) -> None:
    """A user may put anything else into the name of a cgroup of his, and so begin a line of his own."""
    home = "0::/user.slice/user-1000.slice/user@1000.service"
    forged = f"{home}/x{separator}0::/kubepods/pod{OTHER}"
    assert place_of(f"{forged}/{BOX}\n") == Place(container=f"user-1000/{BOX}")
    assert place_of(f"{forged}\n") == HOST
    assert run_cgroups_of(f"{home}/x{separator}0::/nvshare-run-1-2\n") == ()
    assert run_cgroups_of(f"0::/nvshare-run-1-2/x{separator}\n") == (":/nvshare-run-1-2",)


NAMES = {
    "not UTF-8": (b"\xff\xfe", "=FF=FE"),
    "a surrogate": ("\ud800".encode(errors="surrogatepass"), "=ED=A0=80"),
    "control characters": (b"\x1b[2J\t\r", "=1B=5B2J=09=0D"),
    "a separator of lines": ("\u2028".encode(), "=E2=80=A8"),
    "as systemd escapes": (b"my\\x2dbox", "my=5Cx2dbox"),
    "the escape itself": (b"=FF", "=3DFF"),
    "as long as any": (b"\xff" * 64, "=FF" * 64),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_containers_name_becomes_plain_text_that_people_can_write(name: str) -> None:
    raw, spelt = NAMES[name]
    for user, prefix in (("", ""), ("user.slice/user-4294967294.slice/", "user-4294967294/")):
        text = b"0::/%smachine-%s.scope\n" % (user.encode(), raw)
        place = place_of(text.decode(errors="surrogateescape"))
        assert place == Place(container=prefix + spelt)
        tenant = TenantName.of_place(place)
        assert tenant is not None
        assert TenantName.parse(tenant.key) == tenant
        assert tenant.key.isascii()
        assert tenant.key.isprintable()


def test_a_name_longer_than_any_machines_is_no_container() -> None:
    assert place_of(f"0::/machine-{'x' * 65}.scope\n") == HOST


@pytest.mark.parametrize(
    ("container", "uid"),
    [("user-1000/x", 1000), ("user-0/x", 0), ("user/x", None), ("x", None), ("user-1000", None), ("", None)],
)
def test_the_user_in_whose_slice_a_container_is(container: str, uid: int | None) -> None:
    assert Place(container=container).slice_uid == uid


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
