"""Simulated pairs: nothing is lost, and a seed replays its run."""

import pytest

import simulation
from pairbus.pairing._async.backlog_route import BacklogRoute
from pairbus.pairing._async.link import Link
from simulation.__main__ import main
from simulation.history import History, Window, judge
from simulation.pair import run_pair

SEEDS_THAT_FAILED = (
    7, 8, 11, 33, 39, 174, 4010, 4123, 5048, 5151, 6133, 6550, 6551, 6880, 6918, 7074, 7758, 9229,
    9387, 73105, 73431, 73587, 76350,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        1,
        2,
        3,
        10,
        *(pytest.param(seed, marks=pytest.mark.long) for seed in SEEDS_THAT_FAILED),
    ],
)
def test_pair_keeps_its_promises(seed):
    report, _ = simulation.run(run_pair, seed)
    assert report.problems == []
    assert report.counts


def problems_of(seeds):
    """What the judge found, until it found something."""
    for seed in seeds:
        if found := simulation.run(run_pair, seed)[0].problems:
            return found
    return []


@pytest.mark.slow
def test_message_acknowledged_without_being_stored_is_found(monkeypatch):
    async def take(route, outgoing, budget, cause):
        """Say that a backlog queue took the messages."""
        return True

    monkeypatch.setattr(BacklogRoute, "take", take)
    assert any("lost" in one for one in problems_of(range(1, 10)))


@pytest.mark.slow
def test_message_sent_twice_is_found(monkeypatch):
    send = Link.send

    async def send_twice(link, what, **options):
        await send(link, what, **options)
        await send(link, what, **options)

    monkeypatch.setattr(Link, "send", send_twice)
    assert any("duplicated without a fault" in one for one in problems_of(range(1, 10)))


def test_command_replays_a_seed_with_its_timeline(capsys):
    assert main(["--seed", "2"]) == 0
    shown = capsys.readouterr().out
    assert "strikes the" in shown
    assert "kept every promise" in shown


def history(**outcomes):
    made = History()
    for name, outcome in outcomes.items():
        call = made.begin(name, "app", 10.0)
        call.outcome, call.ended = outcome, 11.0
    return made


def judged(made, arrived, faults=()):
    return judge(made, arrived, faults, deadline=5.0, aftermath=10.0)


def test_judge_finds_what_was_lost_and_what_nobody_sent():
    verdict = judged(history(a="ok", b="ok", c="unknown", d="unknown"), ["a", "d", "z"])
    assert verdict.lost == ["b"]
    assert verdict.unexpected == ["z"]
    assert verdict.recovered == ["d"]
    assert len(verdict.problems) == 2


def test_judge_does_not_expect_a_message_whose_send_failed():
    verdict = judged(history(a="failed", b="failed"), ["b"])
    assert (verdict.lost, verdict.unexpected, verdict.recovered) == ([], ["b"], [])


def test_judge_forgives_duplicates_near_a_fault_only():
    made = history(a="ok")
    assert judged(made, ["a", "a"]).undue == ["a"]
    assert judged(made, ["a", "a"], [Window("reset", 1.0, 2.0)]).undue == []
    assert judged(made, ["a", "a"], [Window("reset", 1.0, 2.0)]).duplicated == ["a"]
    assert judged(made, ["a", "a"], [Window("reset", 100.0, 101.0)]).undue == ["a"]


def test_judge_finds_calls_beyond_their_deadline():
    made = history(a="ok")
    made.calls["a"].ended = 16.0
    assert judged(made, ["a"]).late == ["a"]
