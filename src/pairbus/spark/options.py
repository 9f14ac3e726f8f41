"""The options of `format("servicebus")`: one table that parses, checks and documents them.

Spark hands options over as strings, with names in any case. Nothing here imports pyspark.
"""

# ruff: noqa: E501  (the table of options reads best with its texts unbroken)

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pairbus.syphon.target import OptionError, Target

__all__ = ["OPTIONS", "ConnectorOptions", "Option", "OptionError", "Target", "parse"]


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("true", "1", "yes"):
        return True
    if lowered in ("false", "0", "no"):
        return False
    raise ValueError("true or false")


def _above_zero(kind: Callable[[str], float], expected: str) -> Callable[[str], float]:
    def parse_one(text: str) -> float:
        value = kind(text)
        if not value > 0:
            raise ValueError(expected)
        return value

    return parse_one


_positive = _above_zero(int, "a whole number above 0")
_seconds = _above_zero(float, "seconds above 0")
_rate = _above_zero(float, "a number above 0")


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise ValueError("a share from 0 to below 1")
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _pairs(text: str) -> dict[str, str]:
    found = {}
    for name in _names(text):
        old, _, new = name.partition("=")
        if not old.strip() or not new.strip():
            raise ValueError("old=new, separated by commas")
        found[old.strip().lower()] = new.strip()
    return found


def _one_of(*values: str) -> Callable[[str], str]:
    def parse_one(text: str) -> str:
        for value in values:
            if text.strip().lower() == value.lower():
                return value
        raise ValueError("one of " + ", ".join(values))

    return parse_one


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name in camelCase, how it is parsed, and its text in the reference."""

    name: str
    type: str
    default: str | None
    use: str  # read, write, both
    meaning: str
    parse: Callable[[str], Any] = str


OPTIONS = (
    Option("connectionString", "string", None, "both",
           "The namespace: `env:NAME` (an environment variable of the driver and the workers), "
           "`file:PATH` (a file that they can read), or the connection string itself, which Spark "
           "redacts by its `SharedAccessKey`."),
    Option("fullyQualifiedNamespace", "string", None, "both",
           "Host name of the namespace (`host:port` if the port is not 5671), together with "
           "`credential`, instead of a connection string."),
    Option("credential", "string", None, "both",
           "`package.module:function`: an importable function that returns a token credential "
           "(of azure-identity, for example), an `AzureNamedKeyCredential` or an `AzureSasCredential`; it is "
           "called in each process that connects, and its tokens are renewed in time."),
    Option("caFile", "string", None, "both",
           "PEM file of the certificate authorities to trust instead of the system's; the driver and "
           "the workers read it."),
    Option("queue", "string", None, "both", "Queue to write to, or queues to read from, separated by commas."),
    Option("topic", "string", None, "both", "Topic to write to, or, with `subscription`, to read from."),
    Option("subscription", "string", None, "read", "Subscription of `topic`."),
    Option("subQueue", "string", "none", "read", "`none` or `deadLetter`: the dead-letter queue.",
           _one_of("none", "deadLetter")),
    Option("mode", "string", "peek", "read",
           "`peek` reads without changing anything; `peekLock` locks messages, which the sink settles; "
           "`receiveAndDelete` removes messages when they are read (at most once).", _one_of("peek", "peekLock", "receiveAndDelete")),
    Option("columns", "string", "all", "read",
           "Columns to decode, separated by commas, or `all`. Fewer columns are faster.", _names),
    Option("maxMessagesPerTrigger", "int", "20000", "read",
           "Maximum number of messages of one queue in a micro-batch. In a batch read, maximum number of "
           "messages of one queue; no limit by default.", _positive),
    Option("maxBytesPerTrigger", "int", "67108864", "read",
           "Maximum number of bytes of one queue in a micro-batch.", _positive),
    Option("fromSequenceNumber", "long", "0", "read", "`peek`: the sequence number to begin with.", int),
    Option("maxPartitions", "int", "16", "read",
           "Maximum number of tasks in a micro-batch; queues share them.", _positive),
    Option("arrowBatchSize", "int", "1000", "read", "Messages in one Arrow batch.", _positive),
    Option("stateLocation", "string", None, "both",
           "`peekLock` and `receiveAndDelete` streams: a directory or an object store URL that driver and "
           "workers can use, for the journal, the held messages and the controls. Required for them; one "
           "location per query."),
    Option("longPoll", "seconds", "900", "read",
           "`peekLock` and `receiveAndDelete` streams: how long one receive waits on an empty queue.",
           _seconds),
    Option("aliases", "boolean", "false", "read",
           "Remove the aliases of the pairbus envelope from the message and return them as columns.",
           _boolean),
    Option("maxMessages", "int", None, "read",
           "`peekLock` streams: stop reading after this many messages in total.", _positive),
    Option("enqueuedBefore", "long", None, "read",
           "`peekLock` streams: read only messages enqueued before this time, in milliseconds since 1970.", int),
    Option("untilEmpty", "boolean", "false", "read",
           "`peekLock` streams: detect when the queues are empty, and record it in the state directory.",
           _boolean),
    Option("readyQueues", "string", None, "read",
           "`peekLock` streams: queues that are known to have messages, separated by commas; the first "
           "micro-batch reads them without polling them first.", _names),
    Option("ledger", "string", None, "both",
           "Ledger to write receipts (the sink, before it settles) and operation counts to."),
    Option("clientId", "string", "spark", "both", "Client id in the ledger."),
    Option("namespaceName", "string", None, "both",
           "Name of the namespace in the ledger; the first label of its host by default."),
    Option("settleNamespaceName", "string", None, "write",
           "Name in the ledger of the namespace that the rows came from."),
    Option("retryAfter", "seconds", "10", "read",
           "`peekLock` streams: the first wait for a destination that cannot take messages; it doubles "
           "up to five minutes.", _seconds),
    Option("creditsPerSecond", "number", None, "read",
           "`peekLock` streams: operations a second that each namespace allows (1000 on the Standard tier). "
           "Below this limit, reading adapts to server-busy answers; no limit by default.", _rate),
    Option("liveTrafficShare", "number", "0.3333", "read",
           "`peekLock` streams: the share of `creditsPerSecond` that is reserved for other clients.", _share),
    Option("missingDestination", "string", "deadLetter", "write",
           "With `settle` and `stateLocation`: `deadLetter` a message whose destination does not exist, or "
           "`wait` for it.", _one_of("deadLetter", "wait")),
    Option("missingDestinationTimeout", "seconds", "86400", "read",
           "`peekLock` streams: how long to wait for a destination that does not exist.", _seconds),
    Option("destinationMap", "string", None, "write",
           "`old=new`, several separated by commas: a message whose `destination` is `old` is sent to "
           "`new`.", _pairs),
    Option("target", "string", None, "write",
           "Name, in receipts, of the namespace that is written to, if it is not the one that the "
           "messages were sent to originally."),
    Option("settle", "boolean", "false", "write",
           "Settle each row by its `entity` and `lockToken` after it was sent: complete messages that the "
           "destination accepted, dead-letter messages that it refused.", _boolean),
    Option("settleConnectionString", "string", None, "write",
           "The namespace that the rows came from, in the forms of `connectionString`; by default the "
           "namespace that is written to."),
    Option("settleFullyQualifiedNamespace", "string", None, "write",
           "Host name of the namespace that the rows came from, with `settleCredential`."),
    Option("settleCredential", "string", None, "write",
           "`credential` for the namespace that the rows came from."),
    Option("settleCaFile", "string", None, "write",
           "`caFile` for the namespace that the rows came from; `caFile` by default."),
    Option("maxBatchBytes", "int", "1000000", "write",
           "Maximum size of a batch in bytes; the link may allow less.", _positive),
    Option("sendTimeout", "seconds", "30", "write", "How long to wait for a destination's answer.", _seconds),
)  # fmt: skip

_BY_NAME = {option.name.lower(): option for option in OPTIONS}
_SECRET = re.compile(r"sharedaccess(key|signature)=", re.IGNORECASE)


@dataclass(frozen=True)
class ConnectorOptions:
    """The options of one source or sink, parsed."""

    target: Target
    settle_target: Target | None
    values: Mapping[str, Any]
    given: frozenset[str]

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def entities(self) -> list[str]:
        """The paths to read from."""
        suffix = "/$DeadLetterQueue" if self["subQueue"] == "deadLetter" else ""
        if self["queue"]:
            return [name + suffix for name in _names(self["queue"])]
        return [f"{self['topic']}/Subscriptions/{self['subscription']}{suffix}"]

    def destination(self) -> str | None:
        """The path to write to, if the rows do not name one."""
        found: str | None = self["queue"] or self["topic"]
        return found


def parse(options: Mapping[str, str], use: str) -> ConnectorOptions:
    """Parse and check the options of a source (`read`) or a sink (`write`).

    Raises:
        OptionError: names every option that is missing, unknown or wrong.
    """
    problems: list[str] = []
    values: dict[str, Any] = {}
    given: set[str] = set()
    for option in OPTIONS:
        values[option.name] = option.parse(option.default) if option.default is not None else None
    for name, text in options.items():
        known = _BY_NAME.get(name.lower())
        if known is None:
            if name.lower() in _SPARK_OWN:
                continue
            problems.append(_unknown(name, use))
            continue
        given.add(known.name)
        try:
            values[known.name] = known.parse(text)
        except ValueError as exc:
            problems.append(f"{known.name}: must be {_expected(known, exc)}, got {_shown(text)}")
    target = _target(values, "", problems, needed=True)
    settle = None
    if use == "write" and values["settle"]:
        settle = _target(values, "settle", problems, needed=False) or target
    if use == "read":
        _check_read(values, problems)
    if problems:
        raise OptionError("servicebus: " + "; ".join(problems))
    assert target is not None
    for name in ("connectionString", "settleConnectionString"):
        values[name] = None  # only the targets hold them from here on, and they do not show them
    return ConnectorOptions(target, settle, values, frozenset(given))


#: Options that Spark itself adds to those of a source or sink.
_SPARK_OWN = {"path", "checkpointlocation", "queryname", "truncate", "numrows"}


def _unknown(name: str, use: str) -> str:
    """Return the problem of an option that does not exist: with the nearest, or with all names."""
    names = [option.name for option in OPTIONS if option.use in (use, "both")]
    near = difflib.get_close_matches(name.lower(), [one.lower() for one in names], n=1)
    if near:
        return f"{name}: there is no such option; did you mean {_BY_NAME[near[0]].name}?"
    return f"{name}: there is no such option; there are {', '.join(names)}"


def _check_read(values: Mapping[str, Any], problems: list[str]) -> None:
    if bool(values["queue"]) == bool(values["topic"]):
        problems.append("queue: name one, or a topic with a subscription")
    elif values["topic"] and not values["subscription"]:
        problems.append("subscription: is missing (a topic is read by its subscriptions)")


def option_name(prefix: str, base: str) -> str:
    """Return the name of a namespace's option: `caFile`, or `settleCaFile`."""
    return prefix + base[0].upper() + base[1:] if prefix else base


def _target(
    values: Mapping[str, Any], prefix: str, problems: list[str], *, needed: bool
) -> Target | None:
    name = partial(option_name, prefix)
    text, host = values[name("connectionString")], values[name("fullyQualifiedNamespace")]
    credential = values[name("credential")]
    trusted = values[name("caFile")] or values["caFile"] or ""
    if text:
        if re.search(r"sharedaccesssignature=", text, re.IGNORECASE):
            # Spark's redaction knows keys, not signatures: it would show in plans.
            problems.append(
                f"{name('connectionString')}: a shared access signature would show in plans; "
                "pass it as env:NAME or file:PATH"
            )
        elif not text.startswith(("env:", "file:")) and not _SECRET.search(text):
            problems.append(f"{name('connectionString')}: has no SharedAccessKey")
        return Target(reference=text, ca_file=trusted)
    if host:
        if not credential or ":" not in credential:
            problems.append(f"{name('credential')}: is missing, as package.module:function")
        return Target(host=host, credential=credential or "", ca_file=trusted)
    if needed:
        problems.append("connectionString: is missing")
    return None


def _expected(option: Option, exc: ValueError) -> str:
    text = str(exc)
    if "invalid literal" in text or "could not convert" in text:
        return {"int": "a whole number", "long": "a whole number"}.get(option.type, "a number")
    return text


def _shown(text: str) -> str:
    return "***" if _SECRET.search(text) else repr(text[:40])
