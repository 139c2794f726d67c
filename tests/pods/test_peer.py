"""Who is at the other end of a socket."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from nvshare.pods import peer as peer_module
from nvshare.pods import tenancy as tenancy_module
from nvshare.pods.cgroups import HOST, Place
from nvshare.pods.peer import (
    ANCESTORS_MAX,
    UNKNOWN_UID,
    IdentityError,
    Peer,
    Process,
    ancestors,
    identify,
    open_process,
    pidfd_dead,
    process_of,
)
from nvshare.pods.tenancy import RUNS_MAX, Run, Tenancy
from nvshare.pods.tenant_name import TenantName
from nvshare.runtime.listener import Exhausted


def tenant_of(tenancy: Tenancy, peer: Peer, namespace: str, name: str, trusted: bool) -> tuple[str, bool]:
    tenant, claim_ignored = tenancy.tenant_of(peer, namespace, name, trusted)
    return tenant.key, claim_ignored


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def own() -> Process:
    process = process_of(os.getpid())
    assert process is not None
    return process


@pytest.mark.parametrize("kernel_gives_pidfd", [True, False])
def test_the_kernel_identifies_the_peer(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, kernel_gives_pidfd: bool
) -> None:
    if not kernel_gives_pidfd:
        monkeypatch.setattr(peer_module, "SO_PEERPIDFD", 9999)
    peer, pidfd = identify(pair[0])
    assert (peer.process, peer.uid) == (own(), os.getuid())
    assert peer.groups == {os.getgid(), *os.getgroups()}
    assert not pidfd_dead(pidfd)
    os.close(pidfd)


def test_pid_0_is_refused(pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "peer_credentials", lambda _connection: (0, 0, 0))
    with pytest.raises(IdentityError, match="pid_not_visible"):
        identify(pair[0])


def test_a_process_that_moves_while_looked_at_is_refused(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([b"0::/a\n", b"0::/b\n"])
    real = peer_module._read
    monkeypatch.setattr(peer_module, "SO_PEERPIDFD", 9999)
    monkeypatch.setattr(
        peer_module, "_read", lambda path: next(answers) if path.endswith("cgroup") else real(path)
    )
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(IdentityError, match="peer_changed"):
        identify(pair[0])
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptors_left_is_no_fault_of_the_peer(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_path: str) -> bytes:
        raise OSError(errno.EMFILE, "too many")

    monkeypatch.setattr(peer_module, "_read", none_left)
    with pytest.raises(Exhausted):
        identify(pair[0])


def test_only_the_very_process_is_opened() -> None:
    process = own()
    pidfd = open_process(process)
    assert pidfd is not None
    os.close(pidfd)
    assert open_process(Process(process.pid, process.start_ticks - 1)) is None


def test_a_command_cannot_forge_its_start_time() -> None:
    """The command's name stands before the numbers, and may look like them."""
    code = (
        "import ctypes, sys; ctypes.CDLL(None).prctl(15, b') S 1 1 1 1 1 1', 0, 0, 0);"
        " print('set', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"set\n"
        found = ancestors(Process(child.pid, 0))
        assert found[1] == own(), "its parent is read right"
        child.kill()


def test_ancestors_lead_to_a_registered_run() -> None:
    tenancy = Tenancy()
    peer = Peer(own(), 1000, HOST)
    parent = ancestors(own())[1]
    assert tenant_of(tenancy, peer, "", "", trusted=False)[0] == f"process:{peer.process.pid}:{own()[1]}"
    tenancy.add_run(parent, Run("default/job"))
    assert tenant_of(tenancy, peer, "", "", trusted=False) == ("default/job", False)
    assert not tenancy.forget_ended("default/job"), "it runs"
    assert tenancy.end_run(parent) == Run("default/job")
    assert tenant_of(tenancy, peer, "", "", trusted=False) == ("default/job", False), "it left this process"
    assert tenancy.forget_ended("default/job")
    assert tenant_of(tenancy, peer, "", "", trusted=False)[0].startswith("process:")


def test_a_run_is_found_over_a_hundred_generations() -> None:
    code = "import os, sys; depth = int(sys.argv[1])\nwhile depth and not os.fork():\n    depth -= 1\n"
    code += "if depth:\n    os.wait()\nelse:\n    print(os.getpid(), flush=True); sys.stdin.read()"
    for depth, tenant in ((100, "default/job"), (ANCESTORS_MAX, "process:")):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(depth)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as run:
            assert run.stdin is not None
            assert run.stdout is not None
            youngest, eldest = process_of(int(run.stdout.readline())), process_of(run.pid)
            assert youngest is not None
            assert eldest is not None
            tenancy = Tenancy()
            tenancy.add_run(eldest, Run("default/job"))
            found, _ = tenant_of(tenancy, Peer(youngest, 1000, HOST), "", "", trusted=False)
            assert found.startswith(tenant), "documented, and bounded"
            run.stdin.close()


def test_a_reused_pid_of_a_run_is_nobodys_ancestor() -> None:
    tenancy = Tenancy()
    parent = ancestors(own())[1]
    tenancy.add_run(Process(parent.pid, parent.start_ticks - 1), Run("default/job"))
    assert tenant_of(tenancy, Peer(own(), 0, HOST), "", "", trusted=False)[0].startswith("process:")


def test_runs_are_bounded() -> None:
    tenancy = Tenancy()
    for pid in range(RUNS_MAX):
        tenancy.add_run(Process(pid, 1), Run("default/job"))
    tenancy.add_run(Process(0, 1), Run("default/other"))
    with pytest.raises(ValueError, match=str(RUNS_MAX)):
        tenancy.add_run(Process(RUNS_MAX, 1), Run("default/job"))


def test_a_runs_cgroup_tells_whatever_the_ancestors_are() -> None:
    tenancy = Tenancy()
    outer, inner = "freezer:/nvshare-run-1-1", "freezer:/nvshare-run-1-1/nvshare-run-2-2"
    tenancy.add_run(Process(1, 1), Run("default/outer", outer))
    stray = Peer(Process(10, 20), 0, HOST, (inner, outer))
    assert tenant_of(tenancy, stray, "", "claimed", trusted=True) == ("default/outer", True)
    tenancy.add_run(Process(2, 2), Run("default/inner", inner))
    assert tenant_of(tenancy, stray, "", "", trusted=True) == ("default/inner", False)
    elsewhere = Peer(Process(10, 20), 0, HOST, ("freezer:/user/nvshare-run-1-1", "pids:/nvshare-run-1-1"))
    assert tenant_of(tenancy, elsewhere, "", "", trusted=True)[0] == "process:10:20"
    tenancy.end_run(Process(2, 2))
    assert tenancy.forget_ended("default/inner")
    assert tenant_of(tenancy, stray, "", "", trusted=True)[0] == "default/outer"


def test_a_pod_of_two_runs_is_over_with_the_second() -> None:
    tenancy = Tenancy()
    for pid in (1, 2):
        tenancy.add_run(Process(pid, 1), Run("default/job"))
    tenancy.end_run(Process(1, 1))
    assert not tenancy.forget_ended("default/job")
    tenancy.end_run(Process(2, 1))
    assert tenancy.forget_ended("default/job")
    assert tenancy.runs() == {}


@pytest.mark.parametrize(
    ("place", "trusted", "said", "tenant", "passed_over"),
    [
        (Place(pod_uid="u"), True, "x", "pod:u", True),
        (Place(pod_uid="u"), False, "", "pod:u", False),
        (Place(container="c"), True, "x", "container:c", True),
        (HOST, True, "x", "default/x", False),
        (HOST, False, "x", "process:1:2", True),
        (HOST, True, "none", "process:1:2", False),
        (HOST, True, "Bad\nName", "process:1:2", True),
        (HOST, True, "../../secrets", "process:1:2", True),
    ],
)
def test_which_source_of_a_tenant_counts(
    place: Place, trusted: bool, said: str, tenant: str, passed_over: bool
) -> None:
    peer = Peer(Process(1, 2), 0, place)
    assert tenant_of(Tenancy(), peer, "", said, trusted) == (tenant, passed_over)


@pytest.mark.parametrize(
    ("text", "pod"),
    [
        ("web", "default/web"),
        ("ml/train-0", "ml/train-0"),
        ("process:12:34", "process:12:34"),
        ("pod:0d4a5b6c-1111-2222-3333-444455556666", "pod:0d4a5b6c-1111-2222-3333-444455556666"),
        ("", None),
        ("a/b/c", None),
        ("Web", None),
        ("-x", None),
        ("a" * 254, None),
        ("process:x:1", None),
    ],
)
def test_pods_as_people_write_them(text: str, pod: str | None) -> None:
    tenant = TenantName.parse(text)
    assert (None if tenant is None else tenant.key) == pod


def test_a_users_pod_is_joined_by_nobody_else() -> None:
    """Whoever becomes another user below his run is not his, not even root; nor is somebody unknown."""
    tenancy = Tenancy()
    tenancy.add_run(own(), Run("user-1000/job"))
    itself = f"process:{own().pid}:{own().start_ticks}"
    tenants = {1000: "user-1000/job", 1001: itself, 0: itself, UNKNOWN_UID: itself}
    for uid, tenant in tenants.items():
        assert tenant_of(tenancy, Peer(own(), uid, HOST), "", "", trusted=False)[0] == tenant
    for run in (Run("default/job"), Run("user-1000/job", operators=True)):
        tenancy.add_run(own(), run)
        for uid in tenants:
            found, _ = tenant_of(tenancy, Peer(own(), uid, HOST), "", "", trusted=False)
            assert found == run.pod, "root's is joined by all"


def test_the_nearest_run_counts_by_cgroup_or_by_ancestor(monkeypatch: pytest.MonkeyPatch) -> None:
    outer, inner = Process(10, 1), Process(20, 2)
    cgroup = "freezer:/nvshare-run-10-1"
    peer = Peer(Process(30, 3), 1000, HOST, (cgroup,))
    chain = [peer.process, inner, outer]
    monkeypatch.setattr(tenancy_module, "ancestors", lambda _process: chain)
    tenancy = Tenancy()
    tenancy.add_run(outer, Run("default/outer", cgroup, operators=True))
    tenancy.add_run(inner, Run("user-1000/inner"))
    monkeypatch.setattr(tenancy_module, "run_cgroups_around", lambda _process: (cgroup,))
    assert tenant_of(tenancy, peer, "", "", trusted=False)[0] == "user-1000/inner"
    stranger = peer._replace(uid=1001)
    assert tenant_of(tenancy, stranger, "", "", trusted=False)[0] == "default/outer", "the inner is not his"
    # Left behind in the cgroup, and adopted by a run around that of the cgroup.
    monkeypatch.setattr(tenancy_module, "run_cgroups_around", lambda _process: ())
    assert tenant_of(tenancy, peer, "", "", trusted=False)[0] == "default/outer"


def test_a_run_without_a_cgroup_does_not_take_that_of_the_run_around_it() -> None:
    tenancy = Tenancy()
    cgroup = "freezer:/nvshare-run-1-1"
    tenancy.add_run(Process(1, 1), Run("default/outer", cgroup))
    tenancy.add_run(Process(2, 2), Run("default/inner", cgroup))
    peer = Peer(Process(10, 20), 0, HOST, (cgroup,))
    assert tenant_of(tenancy, peer, "", "", trusted=False)[0] == "default/outer"
    tenancy.end_run(Process(2, 2))
    tenancy.forget_ended("default/inner")
    assert tenant_of(tenancy, peer, "", "", trusted=False)[0] == "default/outer"


def test_a_cgroup_of_a_users_run_takes_nobody_else() -> None:
    tenancy = Tenancy()
    cgroup = "freezer:/nvshare-run-1-1"
    tenancy.add_run(Process(1, 1), Run("user-1000/job", cgroup))
    for uid, tenant in ((1000, "user-1000/job"), (0, "process:10:20"), (1001, "process:10:20")):
        peer = Peer(Process(10, 20), uid, HOST, (cgroup,))
        assert tenant_of(tenancy, peer, "", "", trusted=False)[0] == tenant


@pytest.mark.parametrize("many", [0, 3, 400])
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have other groups")
def test_all_groups_of_a_peer_are_known(many: int) -> None:
    """More than Python reads of a socket's option, too."""
    before = os.getgroups()
    os.setgroups(range(50_000, 50_000 + many))
    try:
        one, other = socket.socketpair()
        with one, other:
            peer, pidfd = identify(one)
            os.close(pidfd)
    finally:
        os.setgroups(before)
    assert peer.groups == {os.getgid(), *range(50_000, 50_000 + many)}


def test_a_process_cannot_write_its_groups_into_its_name() -> None:
    status = b"Name:\tx\rGroups: 4242\nState:\tS\nGroups:\t10 11 \n"
    assert peer_module._groups_of(status) == [10, 11]


def test_a_container_of_a_run_belongs_to_the_run_and_one_of_a_pod_to_the_pod() -> None:
    tenancy = Tenancy()
    cgroup = "freezer:/nvshare-run-1-1"
    tenancy.add_run(Process(1, 1), Run("default/job", cgroup))
    for place, tenant in ((Place("", "c"), "default/job"), (Place("u", "c"), "pod:u")):
        peer = Peer(Process(10, 20), 0, place, (cgroup,))
        assert tenant_of(tenancy, peer, "", "", trusted=True) == (tenant, False)
