"""Bad values are told once, also by the next daemon, and take a bounded place in the checkpoint."""

from __future__ import annotations

from nvshare.pods.kubernetes.bad_values import BAD_VALUES_KEPT, ROWS_MAX, BadValues, rows_of
from nvshare.pods.kubernetes.limit_annotations import BadValue

CORE = "nvshare.com/gpu-core-limit"


def bad(value: str) -> list[BadValue]:
    return [BadValue(CORE, value, "accepted: others")]


def test_the_next_daemon_does_not_tell_them_again() -> None:
    former, later = BadValues(), BadValues()
    assert former.take("uid", bad("fast"))
    later.restore(rows_of(former.told()))
    assert not later.take("uid", bad("fast"))
    assert later.take("uid", bad("slow"))
    assert later.take("another", bad("fast"))


def test_those_that_were_told_last_go_into_the_checkpoint() -> None:
    values = BadValues()
    for number in range(ROWS_MAX + 5):
        values.take(f"uid-{number}", bad("fast"))
    values.take("uid-5", bad("slow"))
    rows = rows_of(values.told())
    assert len(rows) == ROWS_MAX
    assert rows[-1] == ("uid-5", CORE, ("fast", "slow"))
    assert rows[0][0] == "uid-6"


def test_whatever_a_checkpoint_says_has_its_bounds() -> None:
    values = BadValues()
    many = tuple(f"bad {number}" for number in range(BAD_VALUES_KEPT + 1))
    values.restore([(f"uid-{number}", CORE, many) for number in range(ROWS_MAX + 1)])
    told = values.told()
    assert len(told) == ROWS_MAX
    assert set(map(len, told.values())) == {BAD_VALUES_KEPT}


def test_what_is_there_now_is_what_was_read_last() -> None:
    values = BadValues()
    values.take("uid", bad("fast"))
    values.take("uid", bad("fast"))
    assert [one.value for one in values.present("uid")] == ["fast"]
    values.take("uid", [])
    assert values.present("uid") == []
    values.forget("uid")
    assert values.take("uid", bad("fast")), "it is another one"
