"""A method of a later SDK works, or raises an error that names it."""

import pytest

from pairbus.exceptions import PairingError
from pairbus.pairing.sdk.surface import Guarded, covers


class Sdk:
    """The SDK's class, in a later version."""

    def send(self):
        return "sent"

    def send_twice(self):
        return self.send() * 2


@covers(Sdk)
class Paired(Sdk):
    def send(self):
        return "paired"


class Wrapped(Guarded, Sdk):
    def greet(self):
        return "hello"


def test_unknown_method_of_a_paired_class_raises_an_error_that_names_it():
    paired = Paired()

    assert paired.send() == "paired"
    with pytest.raises(PairingError, match="Paired does not support 'send_twice'"):
        paired.send_twice()


def test_guarded_object_hands_every_name_on_and_checks_first():
    problems = []

    def check():
        if problems:
            raise problems[0]

    inner = Sdk()
    guarded = Wrapped(inner, check)
    assert guarded.send_twice() == "sentsent"
    guarded.answer = 42
    assert inner.answer == 42
    assert isinstance(guarded, Sdk)

    problems.append(ValueError("closed"))
    with pytest.raises(ValueError, match="closed"):
        guarded.send()
    assert guarded.greet() == "hello"  # what it defines itself is not guarded
