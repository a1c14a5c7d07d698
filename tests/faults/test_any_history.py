"""Each row is there once after any history of a real table: a few histories here, many in the long tests."""

import pytest

from proof.histories import check, run


@pytest.mark.dear
def test_each_row_is_there_once_after_any_history() -> None:
    check(examples=5, steps=20)


@pytest.mark.soak
def test_histories_are_counted() -> None:
    done = run(first=1, seconds=0)
    assert done.histories > 0
    assert done.steps > done.histories


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_each_row_is_there_once_after_any_of_many_histories() -> None:
    check(examples=150, steps=40)
