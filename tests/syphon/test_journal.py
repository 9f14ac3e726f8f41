"""The journal of lock tokens: what a retry finds of the attempts before it."""

import os

from pairbus.syphon.journal import Journal

TOKENS = [os.urandom(16) for _ in range(5)]


def write_page(journal, *, epoch=3, queue="b/0", requests_again=False):
    page = journal.open_page(epoch, queue)
    assert page.request()
    page.record(TOKENS[:3], 3)
    assert page.request()
    page.record(TOKENS[3:], 5)
    if requests_again:
        assert page.request()
    return page


def test_tokens_are_found_by_a_retry_of_the_same_epoch_and_returned_once(tmp_path):
    journal = Journal(tmp_path)
    page = write_page(journal)
    page.close()
    page.close()
    assert journal.take_over(3, "other") == []
    assert journal.take_over(4, "b/0") == []
    assert journal.uncertain(3) == {}
    (left,) = journal.take_over(3, "b/0")
    assert (left.tokens, left.newest, left.is_open) == (TOKENS, 5, False)
    left.mark_returned()
    assert journal.take_over(3, "b/0") == []
    write_page(journal).close()
    journal.drop_before(4)
    assert journal.take_over(3, "b/0") == []


def test_a_leftwhose_reader_asked_and_did_not_note_is_kept_and_leaves_a_doubt(tmp_path):
    journal = Journal(tmp_path)
    write_page(journal, requests_again=True).close()
    journal.drop_before(9)
    assert journal.uncertain(2) == {}
    ((queue, (left,)),) = journal.uncertain(9).items()
    assert (queue, left.tokens, left.newest) == ("b/0", TOKENS, 5)
    left.mark_returned()
    ((_, (left,)),) = journal.uncertain(9).items()
    assert left.tokens == []
    # A record that a killed reader wrote only in part does not close the page.
    with left.path.open("ab") as file:
        file.write(TOKENS[0])
    ((_, (left,)),) = journal.uncertain(9).items()
    assert (left.tokens, left.is_open) == (TOKENS[:1], True)


def test_a_reader_that_outlives_its_attempt_requests_no_more_and_its_records_are_found(tmp_path):
    journal = Journal(tmp_path)
    page = write_page(journal, requests_again=True)
    (left,) = journal.take_over(3, "b/0")
    assert left.is_open
    left.mark_returned()
    late = [os.urandom(16)]
    page.record(late, 6)
    assert not page.request()
    page.record([])
    page.close()
    ((_, (left,)),) = journal.uncertain(3).items()
    assert (left.tokens, left.is_open, left.is_taken_over) == (late, False, True)
