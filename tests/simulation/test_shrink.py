"""A failing run is made smaller, and the bugs that are planted apply to the source."""

import pytest

from simulation import planted
from simulation.shrink import Choice, shrink


def test_shrinking_keeps_the_faults_that_the_failure_needs():
    def fails(choice):
        return {2, 5} <= set(choice.faults) and choice.spark

    assert shrink(9, fails) == Choice((2, 5), spark=True, applications=False)


def test_shrinking_gives_up_after_so_many_runs():
    tried = []
    assert shrink(9, lambda choice: bool(tried.append(choice)), most=3).faults == tuple(range(9))
    assert len(tried) == 3


def test_choice_says_how_to_replay_it():
    assert str(Choice((0, 3), spark=False)) == "--faults 0,3 --no-spark-faults"
    assert str(Choice((), applications=False)) == "--faults none --no-application-faults"


def test_there_are_planted_bugs():
    assert len(planted.names()) >= 20


@pytest.mark.parametrize("name", planted.names())
def test_planted_bug_applies_to_the_source(name):
    planted.apply(name, planted.ROOT, check=True)
    assert planted.explanation(name).endswith(".")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", planted.names())
def test_planted_bug_is_found(name):
    assert planted.find(name, 1000)
