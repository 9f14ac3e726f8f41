"""The sequence numbers of deferred messages: in order, once each, and not in memory."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairbus.syphon.deferred import PAGE, DeferredMessages, DeferredNumbers, from_ranges, to_ranges


class DictPages:
    """Pages in memory, and how many were written."""

    def __init__(self):
        self.pages, self.made, self.is_failing = {}, 0, False

    def names(self):
        return sorted(self.pages)

    def read(self, name):
        if self.is_failing:
            raise ConnectionError("the store cannot be reached")
        return self.pages.get(name, DeferredNumbers())

    def write(self, name, page):
        self.pages[name] = page

    def remove(self, name):
        self.pages.pop(name, None)

    def new_name(self):
        self.made += 1
        return str(self.made)


NUMBERS = st.lists(st.integers(1, 300), max_size=40)
CHANGES = st.lists(
    st.tuples(st.sampled_from("ad"), st.sampled_from(["orders", "bills"]), NUMBERS), max_size=12
)


@given(NUMBERS)
def test_ranges_keep_each_number_once_and_in_order(numbers):
    assert from_ranges(to_ranges(numbers)) == sorted(set(numbers))


@given(CHANGES)
def test_what_was_added_and_not_discarded_is_there_also_after_a_restart(changes):
    store = DictPages()
    deferred = DeferredMessages(store)
    model = {"orders": set(), "bills": set()}
    for kind, destination, numbers in changes:
        if kind == "a":
            deferred.add(destination, "b/0", numbers)
            model[destination] |= set(numbers)
        else:
            deferred.discard("b/0", numbers)
            for known in model.values():
                known -= set(numbers)
    again = DeferredMessages(store)
    again.load()
    for one in (deferred, again):
        assert one.counts() == {name: len(n) for name, n in model.items() if n}
        for destination, numbers in model.items():
            found = one.next({destination}, 1000)
            assert found == ({"b/0": tuple(sorted(numbers))} if numbers else {})


def test_the_oldest_messages_of_a_queue_come_first_whatever_their_destination():
    deferred = DeferredMessages(DictPages())
    deferred.add("orders", "b/0", [5, 1, 9])
    deferred.add("bills", "b/0", [2, 8])
    deferred.add("bills", "b/1", [1])
    assert deferred.next({"orders", "bills"}, 3) == {"b/0": (1, 2, 5), "b/1": (1,)}
    assert deferred.oldest("bills") == ("b/1", 1)


def test_200_000_deferred_messages_are_kept_in_pages_and_not_in_memory():
    store = DictPages()
    deferred = DeferredMessages(store)
    for first in range(1, 400_000, 8 * PAGE):  # every second message is for another destination
        deferred.add("orders", "b/0", range(first, min(first + 8 * PAGE, 400_000), 2))
    assert len(store.pages) == -(-200_000 // PAGE)
    tracemalloc.start()
    again = DeferredMessages(store)
    again.load()
    in_memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert sum(again.counts().values()) == sum(deferred.counts().values()) == 200_000
    assert in_memory < 50_000  # bytes


@pytest.mark.parametrize("change", [DeferredMessages.add, DeferredMessages.discard])
def test_no_number_is_forgotten_while_a_page_cannot_be_read(change):
    store = DictPages()
    deferred = DeferredMessages(store)
    deferred.add("orders", "b/0", [1, 2, 3])
    store.is_failing = True
    with pytest.raises(ConnectionError):
        change(deferred, *("orders", "b/0", [2, 4])[-change.__code__.co_argcount + 1 :])
    store.is_failing = False
    assert deferred.next({"orders"}, 10) == {"b/0": (1, 2, 3)}
    assert deferred.lost == set()


def test_a_destination_is_as_before_if_a_new_page_cannot_be_written(monkeypatch):
    def fail(name, page):
        raise OSError("the disk is full")

    store = DictPages()
    deferred = DeferredMessages(store)
    deferred.add("orders", "b/1", [7])
    monkeypatch.setattr(store, "write", fail)
    with pytest.raises(OSError, match="full"):
        deferred.add("orders", "b/0", [1])
    assert deferred.oldest("orders") == ("b/1", 7)
    with pytest.raises(OSError, match="full"):
        deferred.add("bills", "b/0", [1])
    assert deferred.destinations() == {"orders"}


@pytest.mark.parametrize("page", [{}, {"destination": "orders", "queue": "b/0", "ranges": []}])
def test_a_page_without_content_is_noticed_when_it_is_loaded(page):
    store = DictPages()
    DeferredMessages(store).add("orders", "b/0", [1, 2, 3])
    store.pages["broken"] = DeferredNumbers.from_json(page)
    again = DeferredMessages(store)
    assert again.load() == ["broken"]
    assert again.counts() == {"orders": 3}


def test_numbers_that_are_lost_behind_the_back_are_noticed_by_the_next_change():
    store = DictPages()
    deferred = DeferredMessages(store)
    deferred.add("orders", "b/0", [1, 2, 3])
    store.pages.clear()
    deferred.add("orders", "b/0", [4])
    assert deferred.lost == {"b/0"}
    assert deferred.next({"orders"}, 10) == {"b/0": (4,)}


def test_a_page_that_is_lost_does_not_keep_its_messages_waiting_for_ever():
    store = DictPages()
    deferred = DeferredMessages(store)
    deferred.add("orders", "b/0", [1, 2, 3])
    store.pages.clear()
    assert deferred.next({"orders"}, 10) == {}
    assert deferred.lost == {"b/0"}
    assert deferred.counts() == {}
