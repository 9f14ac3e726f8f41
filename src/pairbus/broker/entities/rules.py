"""The rules of a subscription: which messages it receives, and how many copies.

As in the service: all matching rules without an action together add one copy; each matching rule
with an action adds a copy of its own, changed by the action.
"""

from __future__ import annotations

from pairbus.broker.entities.contents import View, changed_copy
from pairbus.broker.entities.errors import EntityExistsError, EntityNotFoundError
from pairbus.broker.entities.messages import IncomingMessage
from pairbus.broker.entities.model import RuleDescription, TrueFilter
from pairbus.broker.filters.actions import Action, compile_action
from pairbus.broker.filters.compiled import Filter, compile_filter


class RuleSet:
    """The rules of one subscription, by name in lower case, compiled."""

    def __init__(self) -> None:
        self.rules: dict[str, RuleDescription] = {}
        self._compiled: dict[str, tuple[Filter, Action | None]] = {}
        self._filters: list[Filter] = []
        self._filters_with_action: list[tuple[Filter, Action]] = []
        self.takes_all = False
        """A rule without an action matches every message, and no rule has an action."""

    def put(self, rule: RuleDescription, *, is_update: bool = False) -> None:
        """Add or replace a rule.

        Raises:
            EntityExistsError: the name of a new rule is used already.
            EntityNotFoundError: there is no rule of this name to replace.
        """
        key = rule.name.lower()
        if is_update:
            self.get(key)
        elif key in self.rules:
            raise EntityExistsError(f"The rule '{rule.name}' exists already.")
        action = None if rule.action is None else compile_action(rule.action)
        self._compiled[key] = compile_filter(rule.filter), action
        self.rules[key] = rule
        self._arrange()

    def get(self, name: str) -> RuleDescription:
        """The rule of this name; EntityNotFoundError if there is none."""
        try:
            return self.rules[name.lower()]
        except KeyError:
            raise EntityNotFoundError(
                f"The messaging entity '{name}' could not be found."
            ) from None

    def remove(self, name: str) -> None:
        """Remove a rule; EntityNotFoundError if there is none of this name."""
        self.get(name)
        del self.rules[name.lower()], self._compiled[name.lower()]
        self._arrange()

    def _arrange(self) -> None:
        found = self._compiled.values()
        self._filters = [matches for matches, act in found if act is None]
        self._filters_with_action = [(matches, act) for matches, act in found if act is not None]
        self.takes_all = not self._filters_with_action and any(
            isinstance(rule.filter, TrueFilter) for rule in self.rules.values()
        )

    def copies(self, message: IncomingMessage, view: View) -> list[IncomingMessage]:
        """The copies of a message that the subscription gets; none if no rule matches.

        Raises:
            FilterError: a filter or action cannot be evaluated for this message.
        """
        if self.takes_all:
            return [message]
        found = [message] if any(matches(view) for matches in self._filters) else []
        found += [
            changed_copy(message, view, act(view))
            for matches, act in self._filters_with_action
            if matches(view)
        ]
        return found
