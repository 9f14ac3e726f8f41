"""What an entity is: descriptions of queues, topics, subscriptions and rules.

The dataclasses are frozen and their fields are named as in the properties objects of
``azure.servicebus.management``, so that what a user sets is found under the name the user knows.
A description is plain data: :meth:`validated` checks it against the limits of the service and
returns it with the service's defaults filled in; :func:`check_update` says what may not change;
:func:`check_forwarding` needs to look at the other entities of the namespace.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from .errors import ArgumentError

MAX_DURATION = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477580)
"""The service's maximum, ``P10675199DT2H48M5.4775807S``: .NET's ``TimeSpan.MaxValue``."""

MAX_PATH_LENGTH = 260
MAX_NAME_LENGTH = 50
MAX_USER_METADATA = 1024
MAX_SQL_LENGTH = 1024
MAX_AUTHORIZATION_RULES = 12
MAX_RULE_PROPERTIES = 128
DEFAULT_MAX_MESSAGE_KILOBYTES = 1024
MAX_DELIVERY_COUNT = 2**31 - 1

_PATH = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-/]*[A-Za-z0-9])?", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._\-]*[A-Za-z0-9])?", re.ASCII)
_RULE_NAME = re.compile(r"[A-Za-z0-9_$](?:[A-Za-z0-9._\-$]*[A-Za-z0-9_$])?", re.ASCII)
_SIZES = frozenset({1024, 2048, 3072, 4096, 5120, 10240, 20480, 40960, 81920})
_PARTITIONED_SIZES = _SIZES | {16384, 32768, 49152, 65536}


class EntityStatus(enum.StrEnum):
    """What an entity lets its users do."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def can_send(self) -> bool:
        """Whether messages may be sent to the entity."""
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        """Whether messages may be received from the entity."""
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


class AccessRight(enum.StrEnum):
    """A claim that a shared access key can carry. Manage includes the other two."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


class AvailabilityStatus(enum.StrEnum):
    """Whether the service can serve the entity; here it always can."""

    AVAILABLE = "Available"


@dataclass(frozen=True, slots=True)
class TypedValue:
    """A value of a rule with its XML schema type, kept as it was written.

    ``type`` is the local name of the XML schema type (``string``, ``int``, ``long``, ``double``,
    ``boolean``, ``dateTime``, ``duration``, …) and ``text`` its lexical form, so that what was set
    comes back exactly; :attr:`value` is what filters compute with.
    """

    type: str
    text: str

    @property
    def value(self) -> Scalar:
        """The value as a Python object; ArgumentError when the text does not fit the type."""
        return parse_typed(self.type, self.text)


Scalar: TypeAlias = "str | int | float | bool | datetime | timedelta | None"
Pairs: TypeAlias = tuple[tuple[str, TypedValue], ...]

INT_TYPES = frozenset(
    {"int", "long", "short", "byte", "unsignedInt", "unsignedLong", "unsignedShort"}
    | {"unsignedByte", "integer"}
)
FLOAT_TYPES = frozenset({"double", "float", "decimal"})


def parse_typed(type_name: str, text: str) -> Scalar:
    """The Python value of *text* read as the XML schema type *type_name*."""
    try:
        if type_name in INT_TYPES:
            return int(text)
        if type_name in FLOAT_TYPES:
            return float(text)
        if type_name == "boolean":
            return {"true": True, "1": True, "false": False, "0": False}[text.strip().lower()]
        if type_name == "dateTime":
            moment = datetime.fromisoformat(_trim_fraction(text.strip()))
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if type_name == "duration":
            return parse_duration(text)
        if type_name in ("string", "guid", "char", "anyURI"):
            return text
    except (ValueError, KeyError, OverflowError):
        raise ArgumentError(f"'{text[:64]}' is not a value of type {type_name}.") from None
    raise ArgumentError(f"The type '{type_name[:64]}' is not supported as a value of a rule.")


def _trim_fraction(text: str) -> str:
    """.NET writes seven digits of a second and more; Python keeps six."""
    return re.sub(r"(\.\d{6})\d+", r"\1", text)


_DURATION = re.compile(
    r"(-)?P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(?:T(?:(\d{1,10})H)?(?:(\d{1,12})M)?(?:(\d{1,15})(?:\.(\d{1,12}))?S)?)?",
    re.ASCII,
)


def parse_duration(text: str) -> timedelta:
    """An ISO 8601 duration as a timedelta, capped at the service's maximum."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or text.strip().endswith(("P", "T")):
        raise ArgumentError(f"'{text[:64]}' is not a duration in ISO 8601 form.")
    sign, years, months, weeks, days, hours, minutes, seconds, fraction = match.groups()
    try:
        value = timedelta(
            days=int(years or 0) * 365 + int(months or 0) * 30 + int(days or 0),
            weeks=int(weeks or 0),
            hours=int(hours or 0),
            minutes=int(minutes or 0),
            seconds=int(seconds or 0),
            microseconds=int((fraction or "0")[:6].ljust(6, "0")),
        )
    except OverflowError:
        raise ArgumentError(f"The duration '{text[:64]}' is out of range.") from None
    return -value if sign else min(value, MAX_DURATION)


def format_duration(value: timedelta) -> str:
    """A timedelta as the ISO 8601 duration that the service writes."""
    if value >= MAX_DURATION:
        return "P10675199DT2H48M5.4775807S"
    sign = "-" if value < timedelta() else ""
    value = abs(value)
    hours, rest = divmod(value.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{value.microseconds:06d}".rstrip("0") if value.microseconds else ""
    time = (
        (f"{hours}H" if hours else "")
        + (f"{minutes}M" if minutes else "")
        + (f"{seconds}{fraction}S" if seconds or fraction else "")
    )
    date = f"{value.days}D" if value.days else ""
    if not date and not time:
        return "PT0S"
    return f"{sign}P{date}" + (f"T{time}" if time else "")


# --- rules ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Matches when the SQL expression is true of the message."""

    sql_expression: str
    parameters: Pairs = ()
    requires_preprocessing: bool | None = None
    compatibility_level: str | None = "20"


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Matches every message."""

    sql_expression: str = "1=1"


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Matches no message."""

    sql_expression: str = "1=0"


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Matches when every property that is set equals the message's."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Pairs = ()


@dataclass(frozen=True, slots=True)
class SqlAction:
    """Changes the copy of a message that a rule lets into its subscription."""

    sql_expression: str
    parameters: Pairs = ()
    requires_preprocessing: bool | None = None
    compatibility_level: str | None = "20"


RuleFilter: TypeAlias = SqlFilter | TrueFilter | FalseFilter | CorrelationFilter


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """A rule of a subscription: which messages come in, and what changes in them."""

    name: str
    filter: RuleFilter = field(default_factory=TrueFilter)
    action: SqlAction | None = None
    created_at_utc: datetime | None = None

    def validated(self) -> RuleDescription:
        """This description, checked against the service's limits."""
        check_name(self.name, "rule", pattern=_RULE_NAME)
        for part in (self.filter, self.action):
            if isinstance(part, SqlFilter | SqlAction):
                if not part.sql_expression.strip() and not isinstance(part, SqlAction):
                    raise ArgumentError("A SQL filter needs an expression.")
                _at_most(len(part.sql_expression), MAX_SQL_LENGTH, "SqlExpression", "characters")
                _check_pairs(part.parameters, "Parameters")
            elif isinstance(part, CorrelationFilter):
                _check_pairs(part.properties, "Properties")
                if part == CorrelationFilter():
                    raise ArgumentError("A correlation filter needs at least one property.")
        return self


def _check_pairs(pairs: Pairs, what: str) -> None:
    _at_most(len(pairs), MAX_RULE_PROPERTIES, what, "entries")
    if len({key for key, _ in pairs}) != len(pairs):
        raise ArgumentError(f"{what} names a key twice.")
    for key, value in pairs:
        if not key:
            raise ArgumentError(f"{what} has an empty key.")
        parse_typed(value.type, value.text)


DEFAULT_RULE = RuleDescription("$Default")


# --- authorization --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A shared access key of an entity, and what its holder may do."""

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


def _check_authorization_rules(rules: tuple[AuthorizationRule, ...]) -> None:
    _at_most(len(rules), MAX_AUTHORIZATION_RULES, "AuthorizationRules", "rules")
    names = [rule.validated().key_name.lower() for rule in rules]
    if len(set(names)) != len(names):
        raise ArgumentError("Two authorization rules have the same KeyName.")


# --- entities -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue as its owner described it."""

    name: str
    lock_duration: timedelta = timedelta(minutes=1)
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live: timedelta = MAX_DURATION
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    user_metadata: str | None = None
    auto_delete_on_idle: timedelta = MAX_DURATION
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: int = DEFAULT_MAX_MESSAGE_KILOBYTES
    availability_status: AvailabilityStatus = AvailabilityStatus.AVAILABLE

    def validated(self) -> QueueDescription:
        """This description, checked against the service's limits."""
        check_path(self.name)
        _check_lock(self.lock_duration)
        _check_size(self.max_size_in_megabytes, partitioned=self.enable_partitioning)
        _check_ttl(self.default_message_time_to_live)
        _check_window(self.duplicate_detection_history_time_window)
        _check_delivery_count(self.max_delivery_count)
        _check_authorization_rules(self.authorization_rules)
        _check_metadata(self.user_metadata)
        _check_idle(self.auto_delete_on_idle)
        _check_message_size(self.max_message_size_in_kilobytes)
        _check_forward_of_itself(self.name, self.forward_to, "ForwardTo")
        _check_forward_of_itself(
            self.name, self.forward_dead_lettered_messages_to, "ForwardDeadLetteredMessagesTo"
        )
        if self.requires_session and self.forward_to:
            raise ArgumentError("A queue that requires sessions cannot forward its messages.")
        return replace(
            self,
            forward_to=self.forward_to or None,
            forward_dead_lettered_messages_to=self.forward_dead_lettered_messages_to or None,
        )


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as its owner described it."""

    name: str
    default_message_time_to_live: timedelta = MAX_DURATION
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    enable_batched_operations: bool = True
    filtering_messages_before_publishing: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    support_ordering: bool = True
    auto_delete_on_idle: timedelta = MAX_DURATION
    enable_partitioning: bool = False
    enable_express: bool = False
    max_message_size_in_kilobytes: int = DEFAULT_MAX_MESSAGE_KILOBYTES
    availability_status: AvailabilityStatus = AvailabilityStatus.AVAILABLE

    def validated(self) -> TopicDescription:
        """This description, checked against the service's limits."""
        check_path(self.name)
        _check_size(self.max_size_in_megabytes, partitioned=self.enable_partitioning)
        _check_ttl(self.default_message_time_to_live)
        _check_window(self.duplicate_detection_history_time_window)
        _check_authorization_rules(self.authorization_rules)
        _check_metadata(self.user_metadata)
        _check_idle(self.auto_delete_on_idle)
        _check_message_size(self.max_message_size_in_kilobytes)
        if self.status is EntityStatus.RECEIVE_DISABLED:
            raise ArgumentError("The status ReceiveDisabled does not apply to a topic.")
        return self


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription of a topic as its owner described it."""

    topic_name: str
    name: str
    lock_duration: timedelta = timedelta(minutes=1)
    requires_session: bool = False
    default_message_time_to_live: timedelta = MAX_DURATION
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle: timedelta = MAX_DURATION
    availability_status: AvailabilityStatus = AvailabilityStatus.AVAILABLE

    @property
    def path(self) -> str:
        """The address of the subscription, ``<topic>/Subscriptions/<name>``."""
        return subscription_path(self.topic_name, self.name)

    def validated(self) -> SubscriptionDescription:
        """This description, checked against the service's limits."""
        check_path(self.topic_name)
        check_name(self.name, "subscription")
        _check_lock(self.lock_duration)
        _check_ttl(self.default_message_time_to_live)
        _check_delivery_count(self.max_delivery_count)
        _check_metadata(self.user_metadata)
        _check_idle(self.auto_delete_on_idle)
        for attribute, target in (
            ("ForwardTo", self.forward_to),
            ("ForwardDeadLetteredMessagesTo", self.forward_dead_lettered_messages_to),
        ):
            _check_forward_of_itself(self.topic_name, target, attribute)
        if self.requires_session and self.forward_to:
            raise ArgumentError(
                "A subscription that requires sessions cannot forward its messages."
            )
        return replace(
            self,
            forward_to=self.forward_to or None,
            forward_dead_lettered_messages_to=self.forward_dead_lettered_messages_to or None,
        )


EntityDescription: TypeAlias = QueueDescription | TopicDescription | SubscriptionDescription


@dataclass(frozen=True, slots=True)
class RuntimeProperties:
    """The state of an entity at one moment: counts, sizes and times; 0 where none apply."""

    created_at_utc: datetime
    updated_at_utc: datetime
    accessed_at_utc: datetime
    size_in_bytes: int = 0
    total_message_count: int = 0
    active_message_count: int = 0
    dead_letter_message_count: int = 0
    scheduled_message_count: int = 0
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0
    subscription_count: int = 0


# --- the rules of the service ---------------------------------------------------------------------


def entity_key(path: str) -> str:
    """The form under which a path is compared: paths do not differ by case."""
    return path.strip("/").lower()


def subscription_path(topic_name: str, name: str) -> str:
    """The address of a subscription."""
    return f"{topic_name}/Subscriptions/{name}"


def check_path(path: str) -> None:
    """Refuse a queue or topic name that the service would not take."""
    if not path:
        raise ArgumentError("An entity needs a name.")
    _at_most(len(path), MAX_PATH_LENGTH, "The entity path", "characters")
    if not _PATH.fullmatch(path) or "//" in path:
        raise ArgumentError(
            f"'{path}' contains characters that are not allowed in an entity path: it may hold "
            "letters, digits, periods, hyphens, underscores and slashes, and starts and ends with "
            "a letter or digit."
        )
    if "subscriptions" in path.lower().split("/")[1:]:
        raise ArgumentError(f"'{path}': the segment 'Subscriptions' is reserved.")


def check_name(name: str, kind: str, *, pattern: re.Pattern[str] = _NAME) -> None:
    """Refuse a subscription or rule name that the service would not take."""
    if not name:
        raise ArgumentError(f"A {kind} needs a name.")
    _at_most(len(name), MAX_NAME_LENGTH, f"The {kind} name", "characters")
    if not pattern.fullmatch(name):
        raise ArgumentError(
            f"'{name}' contains characters that are not allowed in a {kind} name: it may hold "
            "letters, digits, periods, hyphens and underscores, and starts and ends with a letter "
            "or digit."
        )


_CANNOT_CHANGE = (
    ("requires_session", "RequiresSession"),
    ("requires_duplicate_detection", "RequiresDuplicateDetection"),
    ("enable_partitioning", "EnablePartitioning"),
)


def check_update(old: EntityDescription, new: EntityDescription) -> None:
    """Refuse an update that changes what is fixed at creation."""
    for attribute, shown in _CANNOT_CHANGE:
        if getattr(old, attribute, None) != getattr(new, attribute, None):
            raise ArgumentError(
                f"The value for the {shown} property of an existing entity cannot be changed."
            )


def check_forwarding(
    description: EntityDescription, find: Callable[[str], EntityDescription | None]
) -> None:
    """Refuse to forward to what does not exist, or round in a circle.

    *find* gives the queue or topic of a path, or None.
    """
    if isinstance(description, TopicDescription):
        return
    own = (
        description.topic_name
        if isinstance(description, SubscriptionDescription)
        else (description.name)
    )
    for shown, target in (
        ("ForwardTo", description.forward_to),
        ("ForwardDeadLetteredMessagesTo", description.forward_dead_lettered_messages_to),
    ):
        if not target:
            continue
        seen = {entity_key(own)}
        path: str | None = target
        while path:
            if entity_key(path) in seen:
                raise ArgumentError(f"{shown} '{target}' leads back to where it started.")
            seen.add(entity_key(path))
            found = find(path)
            if found is None:
                raise ArgumentError(f"{shown}: the entity '{path}' does not exist.")
            path = found.forward_to if isinstance(found, QueueDescription) else None


def _at_most(value: int, limit: int, what: str, unit: str) -> None:
    if value > limit:
        raise ArgumentError(f"{what} exceeds the limit of {limit} {unit}: {value}.")


def _check_lock(value: timedelta) -> None:
    if not timedelta() < value <= timedelta(minutes=5):
        raise ArgumentError("LockDuration must be more than zero and at most 5 minutes.")


def _check_ttl(value: timedelta) -> None:
    if value < timedelta(seconds=1):
        raise ArgumentError("DefaultMessageTimeToLive must be at least 1 second.")


def _check_window(value: timedelta) -> None:
    if not timedelta(seconds=20) <= value <= timedelta(days=7):
        raise ArgumentError(
            "DuplicateDetectionHistoryTimeWindow must be between 20 seconds and 7 days."
        )


def _check_idle(value: timedelta) -> None:
    if value < timedelta(minutes=5):
        raise ArgumentError("AutoDeleteOnIdle must be at least 5 minutes.")


def _check_delivery_count(value: int) -> None:
    if not 1 <= value <= MAX_DELIVERY_COUNT:
        raise ArgumentError(f"MaxDeliveryCount must be between 1 and {MAX_DELIVERY_COUNT}.")


def _check_size(value: int, *, partitioned: bool) -> None:
    if value not in (_PARTITIONED_SIZES if partitioned else _SIZES):
        raise ArgumentError(
            f"MaxSizeInMegabytes {value} is not a size that the service offers: 1024, 2048, 3072, "
            "4096 or 5120."
        )


def _check_message_size(value: int) -> None:
    # 256 is what the Standard tier reports, so it comes back in updates; the rest is Premium.
    if value != 256 and not 1024 <= value <= 102400:
        raise ArgumentError("MaxMessageSizeInKilobytes must be between 1024 and 102400.")


def _check_metadata(value: str | None) -> None:
    _at_most(len(value or ""), MAX_USER_METADATA, "UserMetadata", "characters")


def _check_forward_of_itself(own: str, target: str | None, shown: str) -> None:
    if not target:
        return
    check_path(target)
    if entity_key(own) == entity_key(target):
        raise ArgumentError(f"{shown}: an entity cannot forward to itself.")
