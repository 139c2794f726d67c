"""`nvshare run`: what the command gets, how it ends, and what is refused."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys

import pytest

from tests.local.harness import NVSHARE, Place, gone, read_line, wait_until
from tests.node.harness import PATIENCE_SEC


def exit_code(node: Place, *arguments: str) -> tuple[int, str]:
    result = node.nvshare("run", *arguments)
    return result.returncode, result.stderr


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (("true",), 0, ""),
        (("sh", "-c", "exit 7"), 7, ""),
        (("sh", "-c", "kill -TERM $$"), 128 + signal.SIGTERM, ""),
        (("sh", "-c", "kill -KILL $$"), 128 + signal.SIGKILL, ""),
        (("no-such-command",), 127, "no-such-command: not found"),
        (("/etc",), 126, "/etc: cannot be executed"),
    ],
)
def test_exit_codes_are_the_shells(node: Place, command: tuple[str, ...], code: int, words: str) -> None:
    found, error = exit_code(node, "--", *command)
    assert found == code
    assert words in error


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--gpu-core-limit", "0"),
            "--gpu-core-limit '0' is not understood; accepted: a whole number from 1",
        ),
        (("--gpu-core-limit", "half"), "'half' is not understood"),
        (
            ("--gpu-memory-limit", "4Q"),
            "--gpu-memory-limit '4Q' is not understood; accepted: a number with Ki",
        ),
        (
            ("--gpu", "7"),
            "--gpu '7' names no GPU of this node; accepted: all, or one or more of 0 (",
        ),
        (("--gpu", ""), "--gpu '' does not name a GPU; accepted: all, or one or more of 0 ("),
        (("--gpu", "0,"), "--gpu '0,' does not name a GPU"),
        (
            ("--gpu-memory-limit", "4"),
            "--gpu-memory-limit '4' is not understood; accepted: 0, or at least 1 MiB",
        ),
        (("--gpu-memory-limit", "4"), "did you mean 4Gi?"),
        (("--gpu-memory-limit", "4gb"), "did you mean 4Gi (binary) or 4G (decimal)?"),
        (("--pod", "Bad_Name"), "--pod 'Bad_Name' is not a pod name; accepted: [namespace/]name"),
        (("--pod", "a/b", "--namespace", "c"), "both name a namespace; accepted: one of the two"),
        (("--core-policy", "fair"), "--core-policy 'fair' is not a policy; accepted: cap, share"),
    ],
)
def test_bad_input_is_named_and_nothing_is_started(node: Place, options: tuple[str, ...], words: str) -> None:
    marker = node.directory / "started"
    code, error = exit_code(node, *options, "--", "touch", str(marker))
    assert code == 2
    assert words in error
    assert not marker.exists()


def test_a_limit_above_the_card_is_reported_and_harmless(node: Place) -> None:
    code, error = exit_code(node, "--gpu", "1", "--gpu-memory-limit", "40Gi", "--", "true")
    assert code == 0
    assert "40 GiB is more than there is: GPU 1 has 16 GiB. There it limits nothing" in error
    for options in (("--oversub", "--gpu-memory-limit", "40Gi"), ("--gpu-memory-limit", "16Gi"), ()):
        assert "more than there is" not in exit_code(node, *options, "--", "true")[1]


def test_a_limit_above_the_card_is_reported_by_ctl_too(node: Place) -> None:
    result = node.nvshare("ctl", "quota", "set", "ml/big", "--memory", "40Gi")
    assert result.returncode == 0
    assert "Warning: --memory: 40 GiB is more than there is: GPU 0 has 16 GiB, GPU 1 has" in result.stderr
    result = node.nvshare("ctl", "quota", "set", "ml/big", "--memory", "4Gi")
    assert (result.returncode, result.stderr) == (0, "")
    assert node.nvshare("ctl", "quota", "unset", "ml/big").returncode == 0


def test_a_misspelt_variable_is_warned_of(node: Place) -> None:
    result = node.nvshare("ctl", "clients", "--json", NVSHARE_PRIVAT_DIR="/x")
    assert result.returncode == 0
    assert json.loads(result.stdout)["clients"] == []
    assert result.stderr == (
        "Warning: NVSHARE_PRIVAT_DIR is set, but nvshare has no such variable;"
        " did you mean NVSHARE_PRIVATE_DIR?\n"
    )


def test_no_command_is_bad_input(node: Place) -> None:
    assert exit_code(node) == (2, "Error: no command; accepted: nvshare run [OPTIONS] -- CMD...\n")


def test_no_daemon(bare: Place) -> None:
    code, error = exit_code(bare, "--", "true")
    assert code == 3
    assert "start one with `nvshare up`" in error


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_somebody_elses_node_is_not_permitted(node: Place) -> None:
    nobody = str(pwd.getpwnam("nobody").pw_uid)
    command = ["setpriv", "--reuid", nobody, "--clear-groups", *NVSHARE, "run", "--", "true"]
    source = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + "/src"
    result = subprocess.run(
        command,
        env=node.environment | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        cwd="/",
    )
    assert result.returncode == 5, result.stderr
    assert (
        "root's node serves root alone, because no group is called 'nvshare'. Ask root for `groupadd"
        in result.stderr
    )


def test_what_the_command_gets(node: Place) -> None:
    other = "libSegFault-that-is-not-there.so"
    uuids = [gpu["gpu"] for gpu in node.control.ask("GET", "/v1/gpus")["gpus"]]
    script = "import os; print(*(os.environ.get(n, '') for n in NAMES), sep='|')"
    names = ("LD_PRELOAD", "NVSHARE_SOCK_DIR", "CUDA_VISIBLE_DEVICES", "NVSHARE_ENABLE_SINGLE_OVERSUB")
    code = script.replace("NAMES", repr(names))
    result = node.nvshare(
        "run", "--gpu", "1,0", "--oversub", "--", sys.executable, "-c", code, LD_PRELOAD=other
    )
    preload, sock_dir, visible, oversub = result.stdout.strip().split("|")
    ours, _, rest = preload.partition(":")
    assert ours.endswith("/libnvshare.so")
    assert (rest, sock_dir, visible, oversub) == (other, str(node.sock_dir), f"{uuids[1]},{uuids[0]}", "1")
    assert result.stderr.count("the GPUs are simulated (t4:2); no real one is used") == 1
    plain = node.nvshare("run", "--", sys.executable, "-c", code).stdout.strip().split("|")
    assert plain[2:] == ["", ""], "nothing is hidden or allowed that was not asked for"


def test_limits_are_the_daemons_and_can_be_raised_and_end_with_the_run(node: Place) -> None:
    options = ("--pod", "ml/raise", "--gpu-core-limit", "30", "--gpu-memory-limit", "4Gi")
    job = node.run(*options, "--core-policy", "share", command=("sh", "-c", "echo started; read _"))
    assert read_line(job) == "started"
    found = node.limits("ml/raise")
    assert (found["core_percent"], found["core_source"], found["share"]) == (30, "run", True)
    assert (found["memory_bytes"], found["memory_source"]) == (4 << 30, "run")
    raised = node.nvshare("ctl", "quota", "set", "ml/raise", "--core", "80", "--memory", "8Gi")
    assert raised.returncode == 0
    found = node.limits("ml/raise")
    assert (found["core_percent"], found["memory_bytes"], found["core_source"]) == (80, 8 << 30, "ctl")
    assert node.nvshare("ctl", "quota", "unset", "ml/raise").returncode == 0
    assert node.limits("ml/raise")["core_percent"] == 30
    job.communicate("\n", timeout=PATIENCE_SEC)
    wait_until(lambda: node.limits("ml/raise")["core_percent"] == 100, "the limits are gone")


def test_limits_that_are_not_those_asked_for_are_reported_with_their_origin(node: Place) -> None:
    assert node.nvshare("ctl", "quota", "set", "ml/old", "--core", "80", "--memory", "1Gi").returncode == 0
    try:
        run = node.nvshare("run", "--pod", "ml/old", "--gpu-core-limit", "30", "--", "true")
        assert (
            "nvshare: ml/old: 80 % of each GPU's time (set by nvshare ctl quota set, not the 30 % asked for),"
            " 1 GiB of each GPU's memory (set by nvshare ctl quota set); `nvshare ctl quota unset ml/old`"
            " takes that back\n"
        ) in run.stderr
        shown = node.nvshare("ctl", "quota", "get", "ml/old").stdout.splitlines()
        assert shown[0].startswith("ml/old: 80 % of each GPU's time (set by nvshare ctl quota set), 1 GiB")
        assert shown[1:] == ["  80 %, 1 GiB: set by nvshare ctl quota set"]
        listed = node.nvshare("ctl", "quota", "list").stdout
        assert "ml/old" in listed
        assert "set by nvshare ctl quota set" in listed
    finally:
        assert node.nvshare("ctl", "quota", "unset", "ml/old").returncode == 0
    plain = node.nvshare("run", "--pod", "ml/old", "--gpu-core-limit", "30", "--", "true").stderr
    assert "nvshare: ml/old: 30 % of each GPU's time (from nvshare run), no memory limit\n" in plain
    assert "ml/old" not in node.nvshare("run", "--pod", "ml/old", "--", "true").stderr, (
        "there is nothing to say"
    )


def test_signals_reach_the_command(node: Place) -> None:
    script = (
        "import signal, sys, time\n"
        "def told(number, _): print(signal.Signals(number).name, flush=True)\n"
        "for s in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGINT,"
        " signal.SIGQUIT, signal.SIGALRM, signal.SIGXCPU, signal.SIGRTMIN): signal.signal(s, told)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)  # pause would miss a signal that comes just before it\n"
    )
    job = node.run(command=(sys.executable, "-c", script))
    assert read_line(job) == "ready"
    names = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGINT", "SIGQUIT")
    for name in (*names, "SIGALRM", "SIGXCPU", "SIGRTMIN"):
        job.send_signal(getattr(signal, name))
        assert read_line(job) == name
    job.send_signal(signal.SIGTERM)
    assert job.wait(PATIENCE_SEC) == 128 + signal.SIGTERM


def test_a_parent_that_ignores_its_children(node: Place) -> None:
    """The command is told of as ever, and is as it would be without us."""
    handler = "import signal; print(signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN)"
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(*eval(sys.argv[1]))"
    )
    command = [*NVSHARE, "run", "--", sys.executable, "-c", handler]
    job = node.start(sys.executable, "-c", ignoring, repr((command[0], command)))
    out, _ = job.communicate(timeout=PATIENCE_SEC)
    assert (out, job.returncode) == ("True\n", 0)


def test_what_the_command_leaves_behind_goes_on_and_is_reported(node: Place) -> None:
    script = "sleep 1000 > /dev/null 2>&1 & echo $!"
    result = node.nvshare("run", "--pod", "leaver", "--", "sh", "-c", script)
    pid = int(result.stdout)
    try:
        assert result.returncode == 0
        assert f"default/leaver has ended and left 1 process running (pid {pid})" in result.stderr
        os.kill(pid, 0)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert gone(pid)


def test_orphans_of_the_job_are_reaped(node: Place) -> None:
    """A double fork leaves its child to us; when that ends, it does not stay a zombie."""
    script = "(sh -c 'echo $$; exit 3' &) ; read _"
    job = node.run(command=("sh", "-c", script))
    orphan = int(read_line(job))
    wait_until(lambda: not os.path.exists(f"/proc/{orphan}"), "the orphan is reaped")
    job.communicate("\n", timeout=PATIENCE_SEC)
    assert job.returncode == 0
