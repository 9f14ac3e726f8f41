"""Which sends share a list: tables, and what holds for every queue."""

from hypothesis import given
from hypothesis import strategies as st

from pairbus.pairing.core.coalescing import MAX_BYTES, MAX_MESSAGES, Coalescing, Single, choose

A, B = Single("a", 100), Single("b", 100)


def test_sends_with_equal_keys_go_together_in_order():
    assert choose([A, A, A]) == [0, 1, 2]


def test_one_send_alone_is_no_list():
    assert choose([]) == []
    assert choose([A]) == []
    assert choose([A, B, B]) == []


def test_other_keys_are_passed_over():
    assert choose([A, B, A, B, A]) == [0, 2, 4]


def test_nothing_overtakes_a_list_or_batch_of_the_application():
    assert choose([A, A, None, A]) == [0, 1]
    assert choose([None, A, A]) == []


def test_a_list_stays_within_the_size_and_the_number_that_the_service_takes():
    big = Single("a", MAX_BYTES // 2)
    assert choose([big, big, A, A]) == [0, 1], "and nothing overtakes what did not fit"
    assert choose([Single("a", MAX_BYTES + 1), A, A]) == []
    assert len(choose([A] * 2 * MAX_MESSAGES)) == MAX_MESSAGES
    assert choose([A] * 10, limit=400) == [0, 1, 2]


def test_only_a_list_that_the_service_refused_ends_the_coalescing():
    state = Coalescing()
    state.refused(by_service=False)
    assert state.is_allowed
    state.refused(by_service=True)
    assert not state.is_allowed


SINGLES = st.builds(Single, st.sampled_from("abc"), st.integers(1, MAX_BYTES))


@given(st.lists(SINGLES | st.none(), max_size=20), st.sampled_from([0, 1000, 1 << 30]))
def test_every_queue_is_emptied_in_an_order_that_keeps_each_key_in_order(waiting, limit):
    left, sent = list(enumerate(waiting)), []
    while left:
        chosen = choose([single for _, single in left], limit) or [0]
        assert chosen[0] == 0, "the first send is never passed over"
        sent += [left[position] for position in chosen]
        left = [item for position, item in enumerate(left) if position not in chosen]

    barriers = [position for position, single in sent if single is None]
    for position, single in enumerate(waiting):
        if single is None:  # nothing crosses it, in either direction
            assert {number for number, _ in sent[: position + 1]} == set(range(position + 1))
    assert barriers == sorted(barriers)
    for key in "abc":
        numbers = [position for position, single in sent if single and single.key == key]
        assert numbers == sorted(numbers)
