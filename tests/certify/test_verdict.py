"""What findings come to: one broken promise is enough, and what was not asked is not well."""

import pytest

from lakesink_tools.checks.certify.verdict import ADVICE, Check, CheckResult, Need, Standing, Verdict, judge

WELL = dict.fromkeys(Check, Standing.KEPT)


def verdict(**differs: Standing) -> Verdict:
    standings = WELL | {Check[name]: standing for name, standing in differs.items()}
    return judge([CheckResult(check, standing, "") for check, standing in standings.items()])


def test_a_catalog_that_keeps_all_is_certified() -> None:
    assert verdict() is Verdict.CERTIFIED


@pytest.mark.parametrize("standing", [Standing.BROKEN, Standing.ABSENT, Standing.UNDECIDED])
def test_without_an_atomic_commit_of_several_tables_it_is_certified_for_one(standing: Standing) -> None:
    assert verdict(MULTI_TABLE=standing) is Verdict.SINGLE_TABLE


@pytest.mark.parametrize("check", [check for check in Check if check.need is Need.PROMISE])
def test_one_broken_promise_is_enough(check: Check) -> None:
    assert verdict(**{check.name: Standing.BROKEN}) is Verdict.NOT_SAFE
    assert verdict(**{check.name: Standing.BROKEN, "OWN_WRITES": Standing.BROKEN}) is Verdict.NOT_SAFE


@pytest.mark.parametrize("check", [check for check in Check if check.need is not Need.MULTI_TABLE])
def test_what_was_not_decided_is_not_certified(check: Check) -> None:
    assert verdict(**{check.name: Standing.UNDECIDED}) is Verdict.UNDECIDED
    assert judge([CheckResult(other, Standing.KEPT, "") for other in Check if other is not check]) is Verdict.UNDECIDED


def test_without_tags_it_is_good_enough_without_the_ledger_tag() -> None:
    assert verdict(TAG=Standing.BROKEN, STALE_TAG=Standing.ABSENT) is Verdict.WITHOUT_TAG
    assert verdict(STALE_TAG=Standing.BROKEN) is Verdict.WITHOUT_TAG
    assert verdict(TAG=Standing.BROKEN, STALE_HEAD=Standing.BROKEN) is Verdict.NOT_SAFE


def test_without_history_rows_are_exactly_once_and_nothing_is_proved() -> None:
    assert verdict(HISTORY=Standing.BROKEN) is Verdict.WITHOUT_HISTORY
    assert verdict(HISTORY=Standing.BROKEN, TAG=Standing.BROKEN) is Verdict.WITHOUT_TAG
    assert verdict(HISTORY=Standing.BROKEN, EQUAL_ID=Standing.BROKEN) is Verdict.NOT_SAFE


def test_every_verdict_says_what_to_do_and_every_check_what_follows() -> None:
    assert set(ADVICE) == set(Verdict)
    assert all(check.follows for check in Check)
    assert [one for one in Verdict if one.fit] == [Verdict.CERTIFIED, Verdict.SINGLE_TABLE]
