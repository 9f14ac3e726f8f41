"""The arithmetic of credits, against a simple account of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.broker.entities.credits import CreditBalance


def served(balance: CreditBalance, now: int, cost: int = 1) -> bool:
    if balance.refuses(now):
        return False
    balance.charge(now, cost)
    return True


def test_each_second_serves_exactly_its_credits():
    balance = CreditBalance(1000)
    for second in range(5):
        assert sum(served(balance, second * 1000 + n // 2) for n in range(1500)) == 1000


def test_unused_credits_expire():
    balance = CreditBalance(10)
    assert sum(served(balance, 0) for _ in range(3)) == 3
    assert sum(served(balance, 60_000) for _ in range(30)) == 10


def test_an_operation_that_finds_a_credit_is_served_whole_and_the_rest_is_owed():
    balance = CreditBalance(10)
    assert sum(served(balance, 0) for _ in range(9)) == 9
    assert served(balance, 0, cost=25)  # one is left: 24 are owed
    assert not served(balance, 999)
    assert not served(balance, 1000)
    assert not served(balance, 2999)
    assert sum(served(balance, 3000) for _ in range(30)) == 6


def test_a_debt_can_be_forgiven_instead():
    balance = CreditBalance(10, is_debt_owed=False)
    assert served(balance, 0, cost=25)
    assert not served(balance, 0)
    assert sum(served(balance, 1000) for _ in range(30)) == 10


def test_no_credits_per_second_means_no_limit():
    balance = CreditBalance(0)
    assert all(served(balance, 0, cost=10) for _ in range(10_000))
    with pytest.raises(ValueError, match="credits per second"):
        CreditBalance(-1)


@given(
    per_second=st.integers(1, 50),
    steps=st.lists(st.tuples(st.integers(0, 2500), st.integers(1, 80)), max_size=60),
)
def test_what_is_served_never_exceeds_the_credits_given_by_more_than_one_operation(
    per_second, steps
):
    balance = CreditBalance(per_second)
    now = used = given = 0
    last = -1
    for passed, cost in steps:
        now += passed
        if now // 1000 != last:
            # Given: what was owed is paid first, and nothing is saved beyond one second's worth.
            given = max(used, given) if last < 0 else given
            for _ in range(now // 1000 - last if last >= 0 else 1):
                given = min(given + per_second, max(used, given - per_second) + per_second)
                given = min(given, used + per_second)
            last = now // 1000
        expected = given > used
        assert served(balance, now, cost) is expected
        if expected:
            used += cost


def test_clock_that_was_put_back_begins_a_new_second():
    balance = CreditBalance(2)
    balance.charge(100_000, 2)
    assert balance.refuses(100_500)
    assert not balance.refuses(40_000)
    balance.charge(40_000, 2)
    assert balance.refuses(40_500)
    assert not balance.refuses(41_000)
