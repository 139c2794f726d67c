"""One node of root's, two of its users, and root: each has his own pods, and root's ceilings hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from nvshare.local.state import read_state
from nvshare.runtime.libraries import interposer_library
from tests.local.harness import NVSHARE, Place, gone, node_up, read_line, wait_until
from tests.local.shares import build_saturate, rates, working
from tests.node.harness import PATIENCE_SEC
from tests.noise import despite_noise

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")

ALICE, BOB, STRANGER, GROUP = 62_001, 62_002, 62_003, 62_000
CEILINGS: Final = f"{ALICE}:core=30,memory=1Gi,pods=2"
SOURCE: Final = str(Path(__file__).resolve().parents[2] / "src")
WINDOW_SEC: Final = 8.0


@pytest.fixture(scope="module")
def users() -> Iterator[Place]:
    settings = {"NVSHARE_USERS": str(GROUP), "NVSHARE_USER_CEILINGS": CEILINGS}
    with node_up("--sim", "t4:1", NVSHARE_USER_DEFAULTS=f"@{GROUP}:core=40", **settings) as found:
        found.saturate = build_saturate(found.directory)  # type: ignore[attr-defined]
        yield found


def become(uid: int) -> tuple[str, ...]:
    groups = "--clear-groups" if uid == STRANGER else f"--groups={GROUP}"
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", groups)


def ask(place: Place, uid: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A user's ``nvshare``: it is told where the daemon's sockets are, and may not reach the private one."""
    return subprocess.run(
        [*become(uid), *NVSHARE, *arguments],
        env=place.environment | {"PYTHONPATH": SOURCE},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        cwd="/",
    )


def start(place: Place, uid: int, *command: str, **environment: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    child = subprocess.Popen(
        [*become(uid), *command],
        env=place.environment | {"PYTHONPATH": SOURCE} | environment,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        cwd="/",
    )
    place.started.append(child)
    return child


def run(place: Place, uid: int, pod: str, *options: str) -> subprocess.Popen[str]:
    """A program that always has work."""
    work = (place.saturate, "1000", "direct")  # type: ignore[attr-defined]
    return start(place, uid, *NVSHARE, "run", "--pod", pod, *options, "--", *work)


def pids_of(place: Place, pod: str) -> list[int]:
    return [row["pid"] for row in place.clients() if row["pod"] == pod]


def told(child: subprocess.Popen[str], words: str) -> str:
    assert child.stderr is not None
    while words not in (line := child.stderr.readline()):
        assert line, f"never said: {words}"
    return line.rstrip("\n")


def test_each_gets_his_own_and_a_ceiling_holds(users: Place) -> None:
    """Alice asks for 80 and gets 30; Bob and root get what they ask for, all under one pod's name."""
    jobs = [
        run(users, ALICE, "train", "--gpu-core-limit", "80", "--core-policy", "share"),
        run(users, BOB, "train", "--gpu-core-limit", "50"),
        users.run(
            *("--pod", "train", "--gpu-core-limit", "10"),
            command=(users.saturate, "1000", "direct"),  # type: ignore[attr-defined]
        ),
    ]
    assert told(jobs[0], "train: ") == (
        f"nvshare: user-{ALICE}/train: 30 % of each GPU's time (root's ceiling for its user, not the 80 %"
        " asked for, as a cap, since a share could exceed a ceiling), 1 GiB of each GPU's memory (root's"
        " ceiling for its user)"
    )
    assert "50 % of each GPU's time (from nvshare run)" in told(jobs[1], "train: ")
    with working(jobs):
        pods = (f"user-{ALICE}/train", f"user-{BOB}/train", "default/train")
        pids = [pids_of(users, pod) for pod in pods]
        assert [len(group) for group in pids] == [1, 1, 1]

        def check() -> None:
            got, _ = rates(users, pids, WINDOW_SEC)
            parts = [rate * 90 / sum(got) for rate in got]
            assert parts == pytest.approx([30, 50, 10], abs=4)

        despite_noise(check)


def test_a_user_changes_his_own_pods_and_no_others(users: Place) -> None:
    jobs = [run(users, ALICE, "own"), run(users, BOB, "own")]
    with working(jobs):
        [alices] = pids_of(users, f"user-{ALICE}/own")
        assert [row["pod"] for row in listed(users, BOB)] == [f"user-{BOB}/own"], "he sees his own"
        for pod in (f"user-{ALICE}/own", "other/own", f"process:{alices}:1"):
            result = ask(users, BOB, "ctl", "quota", "set", pod, "--core", "5")
            assert result.returncode == 2, result
        assert ask(users, BOB, "ctl", "explain", f"user-{ALICE}/own").returncode == 2
        seen = [ask(users, BOB, "ctl", "--json", *what).stdout for what in (("gpus",), ("explain", "own"))]
        assert f"user-{ALICE}" not in "".join(seen), "not even as the one whose turn it is"
        killed = ask(users, BOB, "ctl", "kill", str(alices), "--yes")
        assert (killed.returncode, f"no process with pid {alices} uses a GPU here" in killed.stderr) == (
            2,
            True,
        )
        drained = ask(users, BOB, "ctl", "drain", "0", "--no-wait")
        assert (drained.returncode, "for root alone" in drained.stderr) == (5, True)
        assert users.limits(f"user-{ALICE}/own")["core_percent"] == 30

        mine = ask(users, ALICE, "ctl", "quota", "set", "own", "--core", "12")
        assert "12 % of each GPU's time (set by its user with nvshare ctl quota set)" in mine.stdout
        more = ask(users, ALICE, "ctl", "quota", "set", "own", "--core", "90", "--policy", "share")
        assert (
            "30 % of each GPU's time (root's ceiling for its user, not the 90 % asked for, as" in more.stdout
        )
        users.control.ask("PUT", f"/v1/quotas/user-{ALICE}/own", {"core_percent": 20})
        beaten = ask(users, ALICE, "ctl", "quota", "set", "own", "--core", "25").stdout
        assert "20 % of each GPU's time (set by root with nvshare ctl quota set, not the 25 %" in beaten
        assert "unset" not in beaten, "it is not his to take back"
        users.control.ask("DELETE", f"/v1/quotas/user-{ALICE}/own")

        assert ask(users, ALICE, "ctl", "explain", "own").returncode == 0
        assert ask(users, ALICE, "ctl", "kill", "own", "--yes").returncode == 0
        assert jobs[0].wait(PATIENCE_SEC) == 143, "SIGTERM ended it"
    wait_until(lambda: pids_of(users, f"user-{BOB}/own") == [], "the other one has ended, too")
    wait_until(lambda: users.limits(f"user-{ALICE}/own")["core_percent"] == 100, "it ended with the pod")


def listed(place: Place, uid: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(ask(place, uid, "ctl", "--json", "clients").stdout)["clients"]
    return found


def test_programs_that_connect_by_themselves_have_their_users_terms(users: Place) -> None:
    """Also of a user who may not run anything: refused, they would run without any limit."""
    simulated = users.state().simulated
    assert simulated is not None
    environment = simulated.environment({}) | {"LD_PRELOAD": str(interposer_library())}
    command = (users.saturate, "1000", "direct")  # type: ignore[attr-defined]
    jobs = [start(users, uid, *command, **environment) for uid in (ALICE, BOB)]
    with working(jobs):
        found = {row["uid"]: row for row in users.clients()}
        assert [found[uid]["core_percent"] for uid in (ALICE, BOB)] == [30, 40], "a ceiling, and a default"
        assert {found[uid]["pod"].partition(":")[0] for uid in (ALICE, BOB)} == {"process"}
        [quota] = [row for row in quotas(users) if row["pod"] == found[BOB]["pod"]]
        assert quota["limits"]["core_source"] == "default"
        pod = found[ALICE]["pod"]
        assert ask(users, ALICE, "ctl", "quota", "set", pod, "--core", "5").returncode == 0
        assert ask(users, BOB, "ctl", "quota", "set", pod, "--core", "5").returncode == 2
    wait_until(lambda: not quotas(users), "what was said on them has ended with them")


def quotas(place: Place) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = place.control.ask("GET", "/v1/quotas")["quotas"]
    return found


def test_more_pods_than_root_permits_wait(users: Place) -> None:
    jobs = [run(users, ALICE, name) for name in ("first", "second")]
    with working(jobs):
        third = run(users, ALICE, "third")
        assert "as many pods on GPUs as root lets him have" in told(third, "too_many_pods")
        jobs[0].terminate()
        assert read_line(third) == "ready"
        third.terminate()
        third.communicate(timeout=PATIENCE_SEC)


def test_a_users_own_node_mentions_that_of_root(users: Place) -> None:
    """Where root's node has its usual place. A user namespace makes us a user who can start this Python."""
    runtime = users.directory / "r"
    runtime.mkdir(mode=0o700)
    script = "mount -t tmpfs none /run && mkdir /run/nvshare && mount --bind $1 /run/nvshare && shift && $@"
    inside = ("unshare", "--mount", "sh", "-c", script, "-", str(users.sock_dir))
    user = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE, "XDG_RUNTIME_DIR": str(runtime)}

    def found(who: tuple[str, ...], *words: str) -> str:
        command = [*inside, *who, *NVSHARE, *words]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert f"user-{BOB}" in found(become(BOB), "ctl", "status"), "without a node of his own he uses root's"
    said = found(user, "up", "--sim", "t4:1", "--detach")
    state = read_state(runtime / "nvshare-private")
    assert state is not None
    os.kill(state.pid, signal.SIGTERM)
    assert gone(state.pid)
    assert "root's node serves this machine, too: while yours is up, `nvshare run` uses yours" in said


def test_limits_of_a_pod_that_is_not_here_leave_out_its_users_terms(users: Place) -> None:
    pod = f"user-{ALICE}/later"
    assert users.nvshare("ctl", "quota", "set", pod, "--core", "90").returncode == 0
    note = f"{pod}: if its user has a default or a ceiling, that applies too as soon as the pod runs\n"
    try:
        for words in (("list",), ("get", pod)):
            assert note in users.nvshare("ctl", "quota", *words).stdout
    finally:
        assert users.nvshare("ctl", "quota", "unset", pod).returncode == 0


def test_a_user_sees_the_simulated_gpus_of_roots_node(users: Place) -> None:
    simulated = users.state().simulated
    assert simulated is not None
    result = ask(users, BOB, "sim", "status")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"simulated GPUs in {simulated.directory} (t4:1)" in result.stdout
    assert ask(users, STRANGER, "sim", "status").returncode == 2, "he is not served"


def test_a_user_outside_the_group_learns_what_to_do(users: Place) -> None:
    result = ask(users, STRANGER, "run", "--", "true")
    assert result.returncode == 5
    assert f"only the group {GROUP} may use root's node; ask root for `usermod -aG" in result.stderr


def test_a_namespace_is_not_for_a_user_to_choose(users: Place) -> None:
    result = ask(users, ALICE, "run", "--pod", f"user-{BOB}/train", "--", "true")
    assert result.returncode == 2
    assert f"on root's node your pods are in user-{ALICE}" in result.stderr
