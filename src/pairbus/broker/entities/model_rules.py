"""Rules of subscriptions (filters and actions), and authorization rules of entities."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TypeAlias

from pairbus.broker.entities.errors import ArgumentError
from pairbus.broker.entities.model_limits import (
    MAX_AUTHORIZATION_RULES,
    MAX_RULE_PROPERTIES,
    MAX_SQL_LENGTH,
    RULE_NAME,
    at_most,
    check_name,
)
from pairbus.broker.entities.model_values import Pairs, parse_typed


@dataclass(frozen=True, slots=True)
class SqlPart:
    """The base of filters and actions in SQL."""

    sql_expression: str
    parameters: Pairs = ()
    requires_preprocessing: bool | None = None
    compatibility_level: str | None = "20"


class SqlFilter(SqlPart):
    """Matches messages for which the SQL expression is true."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Matches every message."""

    sql_expression: str = "1=1"
    requires_preprocessing: bool | None = None


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Matches no message."""

    sql_expression: str = "1=0"
    requires_preprocessing: bool | None = None


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Matches messages whose properties equal all that are set here."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Pairs = ()


CORRELATION_FIELDS = tuple(f.name for f in fields(CorrelationFilter) if f.name != "properties")
"""The message properties that a correlation filter can compare, in the order of the XML."""


class SqlAction(SqlPart):
    """Changes the copy of a message that matches its rule."""

    __slots__ = ()


RuleFilter: TypeAlias = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """A rule of a subscription: a filter, and an action on the messages that match."""

    name: str
    filter: RuleFilter = field(default_factory=TrueFilter)
    action: SqlAction | None = None
    created_at_utc: datetime | None = None

    def validated(self) -> RuleDescription:
        """This description, checked against the service's limits."""
        check_name(self.name, "rule", pattern=RULE_NAME)
        for part in (self.filter, self.action):
            if isinstance(part, SqlPart):
                if not part.sql_expression.strip() and not isinstance(part, SqlAction):
                    raise ArgumentError("A SQL filter needs an expression.")
                at_most(len(part.sql_expression), MAX_SQL_LENGTH, "SqlExpression", "characters")
                check_pairs(part.parameters, "Parameters")
            elif isinstance(part, CorrelationFilter):
                check_pairs(part.properties, "Properties")
                if part == CorrelationFilter():
                    raise ArgumentError("A correlation filter needs at least one property.")
        return self


def check_pairs(pairs: Pairs, what: str) -> None:
    """Refuse too many parameters, duplicate keys and values that do not fit their type."""
    at_most(len(pairs), MAX_RULE_PROPERTIES, what, "entries")
    if len({key for key, _ in pairs}) != len(pairs):
        raise ArgumentError(f"{what} names a key twice.")
    for key, value in pairs:
        if not key:
            raise ArgumentError(f"{what} has an empty key.")
        parse_typed(value.type, value.text)


DEFAULT_RULE = RuleDescription("$Default")


class AccessRight(enum.StrEnum):
    """A claim that a shared access key can carry. Manage includes the other two."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A shared access key of an entity, with the rights that it grants."""

    key_name: str
    rights: tuple[AccessRight, ...]
    primary_key: str = field(default="", repr=False)
    secondary_key: str = field(default="", repr=False)
    type: str = "SharedAccessAuthorizationRule"
    claim_type: str = "SharedAccessKey"
    claim_value: str = "None"
    created_at_utc: datetime | None = None
    modified_at_utc: datetime | None = None

    def validated(self) -> AuthorizationRule:
        """This rule, checked against the service's limits."""
        if not self.key_name or len(self.key_name) > 256:
            raise ArgumentError("An authorization rule needs a KeyName of 1 to 256 characters.")
        if not self.rights:
            raise ArgumentError(f"The authorization rule '{self.key_name}' grants no rights.")
        if len(set(self.rights)) != len(self.rights):
            raise ArgumentError(f"The authorization rule '{self.key_name}' names a right twice.")
        if AccessRight.MANAGE in self.rights and len(self.rights) != len(AccessRight):
            raise ArgumentError("Manage permission should also include Send and Listen.")
        for key in (self.primary_key, self.secondary_key):
            if len(key) > 256:
                raise ArgumentError(f"A key of the rule '{self.key_name}' is too long.")
        return self


def check_authorization_rules(rules: tuple[AuthorizationRule, ...]) -> None:
    """Refuse too many authorization rules and duplicate names."""
    at_most(len(rules), MAX_AUTHORIZATION_RULES, "AuthorizationRules", "rules")
    names = [rule.validated().key_name.lower() for rule in rules]
    if len(set(names)) != len(names):
        raise ArgumentError("Two authorization rules have the same KeyName.")
