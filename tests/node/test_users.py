"""Which users are served, and what root's settings say on them."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import fields

import pytest

from nvshare.core.settings import SettingError
from nvshare.core.view.snapshot import Explanation, TenantSnapshot
from nvshare.node.config import load
from nvshare.node.requesters import Requester
from nvshare.node.users import Terms, look_up, parse_terms
from nvshare.pods.cgroups import HOST
from nvshare.pods.peer import Peer, Process

NOBODY = frozenset[int]()
GIB = 1 << 30


def test_entries_are_read() -> None:
    entries = parse_terms(" alice : core=30 , memory=4Gi ;\n@students:memory=2Gi;*:core=10,pods=3; ")
    assert entries == [
        ("alice", Terms(4 * GIB, 30)),
        ("@students", Terms(2 * GIB)),
        ("*", Terms(None, 10, 3)),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("alice", "alice:", ":core=3", "@:core=3", "a b:core=3", "alice:cores=3", "alice:core=3,core=4"),
        *("alice:core=0", "alice:core=101", "alice:memory=0", "alice:memory=4Q"),
        *("alice:pods=0", "alice:pods=9999"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(SettingError, match=r"accepted: entries WHO:core=30,memory=4Gi,pods=2 separated by"):
        load({}, {"NVSHARE_USER_CEILINGS": text}, None)


def test_a_default_knows_no_number_of_pods() -> None:
    with pytest.raises(SettingError, match=r"accepted: entries WHO:core=30,memory=4Gi separated by"):
        load({}, {"NVSHARE_USER_DEFAULTS": "*:pods=3"}, None)


def test_the_first_entry_that_fits_decides_on_each_figure() -> None:
    users, unknown = look_up("none", "", "1000:core=80;@500:core=30,memory=2Gi;*:core=10,memory=1Gi,pods=2")
    assert unknown == []
    assert users.ceiling(1000, NOBODY) == Terms(GIB, 80, 2)
    assert users.ceiling(1000, frozenset({500})) == Terms(2 * GIB, 80, 2)
    assert users.ceiling(1001, frozenset({7, 500})) == Terms(2 * GIB, 30, 2)
    assert users.ceiling(1001, NOBODY) == Terms(GIB, 10, 2)
    assert users.ceiling(0, NOBODY) == Terms(), "root is bound by none of it"


def test_a_process_that_sheds_a_group_keeps_its_ceiling() -> None:
    """The user database knows him as a member, whatever groups his process has."""
    user = next(user for user in pwd.getpwall() if user.pw_uid)
    group = grp.getgrgid(user.pw_gid)
    users, _ = look_up("none", "", f"@{group.gr_name}:core=30")
    assert users.ceiling(user.pw_uid, NOBODY).core_percent == 30


def test_a_name_that_nobody_knows_is_reported_and_fits_nobody() -> None:
    ceilings = "no-such-user:core=30;@no-such-group:core=30"
    config = load({}, {"NVSHARE_USER_CEILINGS": ceilings}, None)
    assert "no user is called 'no-such-user'" in config.warnings
    assert "no group is called 'no-such-group'" in config.warnings
    assert look_up("no-such-group", "", "")[1] == [
        "no group is called 'no-such-group', so root's node serves root alone"
    ]
    assert look_up("nvshare", "", "")[1] == [], "the default"
    assert config.users.ceiling(os.getuid() + 1, NOBODY) == Terms()


def test_who_may_run() -> None:
    for text, groups, may in (
        ("none", frozenset({500}), False),
        ("all", NOBODY, True),
        ("500", frozenset({1, 500}), True),
        ("500", frozenset({1}), False),
        ("no-such-group", frozenset({1}), False),
    ):
        users, _ = look_up(text, "", "")
        assert users.may_run(groups) is may, text
        assert users.anybody() is (text in ("all", "500"))


def test_whose_turn_it_is_does_not_concern_a_user() -> None:
    tenants = [
        TenantSnapshot(
            **{field.name: 0 for field in fields(TenantSnapshot)}  # type: ignore[arg-type]
            | {"explanation": Explanation("waiting", reason, 0, "the end of the turn of user-7/secret")}
        )
        for reason in ("turn", "quota")
    ]
    user, operator = Requester(Peer(Process(1, 1), 1000, HOST)), Requester()
    assert user.shown(tenants[0]).explanation.remedy == "the end of another's turn"
    assert user.shown(tenants[1]) == tenants[1]
    assert operator.shown(tenants[0]) == tenants[0]


def test_a_user_owns_his_own_pods_and_an_operator_all() -> None:
    user, operator = Requester(Peer(Process(1, 1), 1000, HOST)), Requester()
    assert [user.owns(owner) for owner in (1000, 1001, None)] == [True, False, False]
    assert [operator.owns(owner) for owner in (1000, 1001, None)] == [True, True, True]
