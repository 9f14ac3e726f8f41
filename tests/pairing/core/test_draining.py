"""When the sends of a draining entity may go to the primary."""

from hypothesis import given
from hypothesis import strategies as st

from pairbus.pairing.core.draining import OVERDUE, Round


def test_a_drain_is_clean_when_all_fences_are_answered_and_nothing_came_behind_them():
    fences = Round(10.0).next({"a": "q/0", "b": "q/1"}, 10.0)

    one = fences.answer("a", 11.0)
    both = one.answer("b", 12.0)

    assert [r.is_clean for r in (fences, one, both)] == [False, False, True]
    assert not both.mark_dirty().is_clean
    assert both.mark_dirty().is_answered


def test_an_answer_to_a_fence_of_another_round_changes_nothing():
    fences = Round(10.0).next({"a": "q/0"}, 10.0)

    assert fences.answer("old", 11.0) == fences


def test_sends_are_held_only_after_a_short_round():
    first = Round(10.0)
    short = first.next({"a": "q/0"}, 10.0).answer("a", 19.9)
    long = first.next({"a": "q/0"}, 10.0).answer("a", 20.1)

    assert [r.next_hold(30.0) for r in (first, short, long)] == [0.0, 15.0, 0.0]


def test_a_fence_that_is_not_answered_is_overdue_after_a_while():
    fences = Round(10.0).next({"a": "q/0"}, 10.0)

    assert not fences.is_overdue(10.0 + OVERDUE - 0.1)
    assert fences.is_overdue(10.0 + OVERDUE)
    assert not fences.answer("a", 20.0).is_overdue(1e6)


@given(st.lists(st.sampled_from(["a", "b", "message", "next"]), max_size=30))
def test_a_clean_round_has_seen_every_answer_since_the_last_message(history):
    current, waiting, is_dirty = Round(0.0, is_dirty=True), set(), True
    for at, what in enumerate(history):
        if what == "next":
            current, waiting, is_dirty = current.next({"a": "q", "b": "r"}, at), {"a", "b"}, False
        elif what == "message":
            current, is_dirty = current.mark_dirty(), True
        else:
            current = current.answer(what, at)
            waiting.discard(what)
        assert current.is_clean == (not waiting and not is_dirty)
