"""The rules of a subscription: which messages come in, and as which copies."""

from __future__ import annotations

from .errors import EntityExistsError, EntityNotFoundError
from .messages import IncomingMessage
from .model import FalseFilter, RuleDescription, TrueFilter


class RuleSet:
    """The rules of one subscription, by name, compiled."""

    def __init__(self) -> None:
        self.rules: dict[str, RuleDescription] = {}

    def add(self, rule: RuleDescription) -> None:
        """Add a rule; EntityExistsError if there is one of this name."""
        if rule.name.lower() in self.rules:
            raise EntityExistsError(f"The rule '{rule.name}' exists already.")
        self.rules[rule.name.lower()] = rule

    def get(self, name: str) -> RuleDescription:
        """The rule of this name; EntityNotFoundError if there is none."""
        try:
            return self.rules[name.lower()]
        except KeyError:
            raise EntityNotFoundError(f"The rule '{name}' does not exist.") from None

    def replace(self, rule: RuleDescription) -> None:
        """Change a rule that exists."""
        self.get(rule.name)
        self.rules[rule.name.lower()] = rule

    def remove(self, name: str) -> None:
        """Take a rule away; EntityNotFoundError if there is none of this name."""
        self.get(name)
        del self.rules[name.lower()]

    def copies(self, message: IncomingMessage) -> list[IncomingMessage]:
        """The copies of a message that the subscription gets; none if no rule matches."""
        for rule in self.rules.values():
            if isinstance(rule.filter, TrueFilter):
                return [message]
            if isinstance(rule.filter, FalseFilter):
                continue
        return []
