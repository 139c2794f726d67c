"""Flag, environment, file, default; and what each is told when it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nvshare.core.settings import SETTINGS, IntegerRange, SettingError
from nvshare.node.config import DAEMON_SETTINGS, load
from nvshare.runtime.settings import Address, ConfigError, Value, as_far_as_live, needs_restart, print_config

GPU = "GPU-00000000-0000-0000-0000-000000000000"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nvshare.yaml"
    path.write_text(
        f"sock_dir: /from/file\ngpus: {GPU}=16Gi\nlog: warning\ndrain_grace_ms: 700\ndebug: true\n"
    )
    return path


def test_precedence_and_provenance(file: Path) -> None:
    environment = {
        "NVSHARE_SOCK_DIR": "/from/env",
        "NVSHARE_LOG": "debug",
        "NVSHARE_DEBUG": "",
        "PATH": "/bin",
    }
    config = load({"NVSHARE_SOCK_DIR": "/from/flag"}, environment, file)
    assert config.values["NVSHARE_SOCK_DIR"] == Value("/from/flag", "flag")
    assert config.values["NVSHARE_LOG"] == Value("debug", "environment")
    assert config.values["NVSHARE_DRAIN_GRACE_MS"] == Value("700", "file")
    assert config.values["NVSHARE_DEBUG"] == Value("1", "file"), "set to nothing is not set"
    assert config.values["NVSHARE_OVERTAKE_SEC"] == Value("10", "default")
    assert config.core.drain_grace_ns == 700_000_000
    shown = print_config(config).splitlines()
    assert len(shown) == len(SETTINGS) + len(DAEMON_SETTINGS)
    assert [line.split() for line in shown if "DRAIN_GRACE" in line] == [
        ["NVSHARE_DRAIN_GRACE_MS", "700", "(file)"]
    ]


@pytest.mark.parametrize("row", [*SETTINGS, *DAEMON_SETTINGS], ids=lambda row: row.variable)
def test_every_variable_is_checked(row: object) -> None:
    variable, accepts = row.variable, row.accepts  # type: ignore[attr-defined]
    values = ["\0nonsense"]
    if isinstance(accepts, IntegerRange):
        values += [str(accepts.least - 1), str(accepts.most + 1), "1.5", "0x10", " 5"]
        for good in (accepts.least, accepts.most):
            assert load({}, {variable: str(good)}, None).values[variable].text == str(good)
    for value in values:
        with pytest.raises(SettingError) as error:
            load({}, {variable: value}, None)
        assert variable in str(error.value)
        assert repr(value) in str(error.value)
        assert accepts.describe() in str(error.value)


@pytest.mark.parametrize(
    ("debug", "log", "level"), [("1", "error", "debug"), ("0", "info", "info"), ("", "off", "off")]
)
def test_debug_is_a_word_for_a_level(debug: str, log: str, level: str) -> None:
    assert load({}, {"NVSHARE_DEBUG": debug, "NVSHARE_LOG": log}, None).log_level == level


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("colour: red", "unknown setting 'colour'; accepted: "),
        ("drain_grace: 700", "unknown setting 'drain_grace'; did you mean 'drain_grace_ms'?"),
        ("LOG: info", "unknown setting 'LOG'"),
        ("- a", "not a mapping"),
        ("log: [a]", "log: ['a'] is not accepted; accepted: text"),
        ("log: loud", "log: 'loud' is not accepted; accepted: error, warning, info"),
        ("log: {", "cannot be read"),
        ("\x00", "cannot be read"),
        ("log: 2001-99-99", "cannot be read"),
        ("log: " + "9" * 5000, "cannot be read"),
        ("[" * 5000, "cannot be read"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load({}, {}, path)
    assert words in str(error.value)
    assert str(path) in str(error.value)


def test_a_misspelt_variable_is_warned_of() -> None:
    environment = {
        "NVSHARE_MEMORY_RESERV_PERCENT": "5",
        "NVSHARE_GPU_MEMORY_LIMIT": "4Gi",
        "NVSHARE_SIM": "t4:1",
        "NVSHARE_SCHEDULER_SERVICE_HOST": "10.0.0.1",
        "NVSHARE_SCHEDULER_PORT_9402_TCP": "tcp://10.0.0.1:9402",
        "NVSHARE_XYZ": "1",
    }
    assert load({}, environment, None).warnings == (
        "NVSHARE_MEMORY_RESERV_PERCENT is set, but nvshare has no such variable;"
        " did you mean NVSHARE_MEMORY_RESERVE_PERCENT?",
        "NVSHARE_XYZ is set, but nvshare has no such variable",
    )


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        load({}, {}, tmp_path / "absent.yaml")


def test_what_needs_a_restart_is_known() -> None:
    old = load({}, {}, None)
    new = load({}, {"NVSHARE_SOCK_DIR": "/x", "NVSHARE_LOG": "debug", "NVSHARE_DRAIN_GRACE_MS": "100"}, None)
    assert needs_restart(old, new) == ["NVSHARE_SOCK_DIR"]
    running = as_far_as_live(old, new)
    assert running.sock_dir == old.sock_dir
    assert (running.log_level, running.core.drain_grace_ns) == ("debug", 100_000_000)
    assert needs_restart(running, new) == ["NVSHARE_SOCK_DIR"], "and it is told each time"


LONG_LABEL = "a" * 64


@pytest.mark.parametrize(
    "host", ["a..b", ".a", ".", "a..", f"{LONG_LABEL}", f"b.{LONG_LABEL}.c", "", "ä", "a b"]
)
def test_a_host_that_cannot_be_looked_up_is_not_accepted(host: str) -> None:
    with pytest.raises(SettingError, match=r"accepted: host:port"):
        load({}, {"NVSHARE_METRICS_ADDR": f"{host}:9402"}, None)


@given(st.from_regex(r"[0-9A-Za-z.-]{1,80}", fullmatch=True))
@example("a" * 63 + ".b.")
@example("0.0.0.0")
@example("1")
def test_every_host_that_is_accepted_can_be_looked_up(host: str) -> None:
    """Before the name server is asked, the name is put in the form that it understands."""
    try:
        host.encode("idna")
        can_be = True
    except UnicodeError:
        can_be = False
    assert (Address().read(f"{host}:9402") is not None) == can_be
