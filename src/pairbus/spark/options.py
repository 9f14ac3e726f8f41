"""The options of `format("servicebus")`: one table that parses, checks and documents them.

Spark hands options over as strings, with names in any case. Nothing here imports pyspark.
"""

# ruff: noqa: E501  (the table of options reads best with its texts unbroken)

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError("a whole number above 0")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise ValueError("seconds above 0")
    return value


def _rate(text: str) -> float:
    value = float(text)
    if value <= 0:
        raise ValueError("a number above 0")
    return value


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise ValueError("a share from 0 to below 1")
    return value


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _one_of(*values: str) -> Callable[[str], str]:
    def parse_one(text: str) -> str:
        for value in values:
            if text.strip().lower() == value.lower():
                return value
        raise ValueError("one of " + ", ".join(values))

    return parse_one


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its name in camelCase, how it is parsed, and what the reference says of it."""

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
           "Host name of the namespace (`host:port` where the port is another than 5671), together with "
           "`credential`, instead of a connection string."),
    Option("credential", "string", None, "both",
           "`package.module:function`: an importable function that returns a token credential "
           "(azure-identity or alike), an `AzureNamedKeyCredential` or an `AzureSasCredential`; it is "
           "called in each process that connects, and its tokens are renewed in time."),
    Option("caFile", "string", None, "both",
           "PEM file of the certificate authorities to trust instead of the system's, for namespaces "
           "behind a private one; the driver and the workers read it."),
    Option("queue", "string", None, "both", "Queue to read from or write to; several, separated by commas, to read from."),
    Option("topic", "string", None, "both", "Topic to write to, or, with `subscription`, to read from."),
    Option("subscription", "string", None, "read", "Subscription of `topic`."),
    Option("subQueue", "string", "none", "read", "`none` or `deadLetter`: the dead-letter queue.",
           _one_of("none", "deadLetter")),
    Option("mode", "string", "peek", "read",
           "`peek` browses and touches nothing; `peekLock` locks, and the sink settles; "
           "`receiveAndDelete` takes, at most once.", _one_of("peek", "peekLock", "receiveAndDelete")),
    Option("columns", "string", "all", "read",
           "Columns to decode, separated by commas: fewer are faster. `all` for all of them.", _names),
    Option("maxMessagesPerTrigger", "int", "20000", "read",
           "Most messages of one queue in one micro-batch; in a batch read, most messages of one queue "
           "(there the default is no limit).", _positive),
    Option("maxBytesPerTrigger", "int", "67108864", "read",
           "Most bytes of one queue in one micro-batch.", _positive),
    Option("fromSequenceNumber", "long", "0", "read", "`peek`: the sequence number to begin with.", int),
    Option("maxPartitions", "int", "16", "read",
           "Most tasks of one micro-batch; queues share them.", _positive),
    Option("arrowBatchSize", "int", "1000", "read", "Messages in one Arrow batch.", _positive),
    Option("stateLocation", "string", None, "both",
           "`peekLock` streams: a directory that driver and workers see, for the token journal, the "
           "held messages and the controls. Required for them; one directory per query, beside the checkpoint."),
    Option("longPoll", "seconds", "900", "read",
           "`peekLock` and `receiveAndDelete` streams: how long one receive waits on an empty queue.",
           _seconds),
    Option("aliases", "boolean", "false", "read",
           "Take the aliases of the pairbus envelope out of the message, into columns of their own.",
           _boolean),
    Option("maxMessages", "int", None, "read",
           "`peekLock` streams: read this many in all, then no more.", _positive),
    Option("enqueuedBefore", "long", None, "read",
           "`peekLock` streams: milliseconds since 1970; what was enqueued later stays.", int),
    Option("untilEmpty", "boolean", "false", "read",
           "`peekLock` streams: find out when the queues are empty, and say so in the state directory.",
           _boolean),
    Option("ledger", "string", None, "both",
           "Ledger to write receipts (the sink, before it settles) and operation counts to."),
    Option("clientId", "string", "spark", "both", "Who acts, in the ledger."),
    Option("namespaceName", "string", None, "both",
           "The namespace's name in the ledger; the first label of its host unless given."),
    Option("settleNamespaceName", "string", None, "write", "Likewise, of the one that rows came from."),
    Option("retryAfter", "seconds", "10", "read",
           "`peekLock` streams: the first wait for a destination that cannot take messages; it doubles "
           "up to five minutes.", _seconds),
    Option("creditsPerSecond", "number", None, "read",
           "`peekLock` streams: operations a second that each namespace allows (1000 on the Standard tier). "
           "Reading adapts to server-busy answers below it; no ceiling unless given.", _rate),
    Option("liveTrafficShare", "number", "0.3333", "read",
           "`peekLock` streams: the share of `creditsPerSecond` that is left free for other clients.", _share),
    Option("missingDestination", "string", "deadLetter", "write",
           "With `settle` and `stateLocation`: `deadLetter` a message whose destination does not exist, or "
           "`wait` for it.", _one_of("deadLetter", "wait")),
    Option("missingDestinationTimeout", "seconds", "86400", "read",
           "`peekLock` streams: how long a destination that does not exist is waited for.", _seconds),
    Option("settle", "boolean", "false", "write",
           "Settle each row by its `entity` and `lockToken` once it was sent: complete what the "
           "destination took, dead-letter what it refuses.", _boolean),
    Option("settleConnectionString", "string", None, "write",
           "The namespace that the rows came from, in the forms of `connectionString`; the one written to "
           "unless given."),
    Option("settleFullyQualifiedNamespace", "string", None, "write",
           "Likewise, with `settleCredential`."),
    Option("settleCredential", "string", None, "write", "Likewise."),
    Option("settleCaFile", "string", None, "write", "Likewise; `caFile` unless given."),
    Option("maxBatchBytes", "int", "1000000", "write",
           "Most bytes in one batch; the link's own limit goes before it.", _positive),
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
        """The path to write to, where the rows do not say it."""
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
            problems.append(f"{name}: there is no such option")
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
        values[name] = None  # from here on only the targets know them, and they do not show them
    return ConnectorOptions(target, settle, values, frozenset(given))


#: What Spark itself puts among a source's or sink's options.
_SPARK_OWN = {"path", "checkpointlocation", "queryname", "truncate", "numrows"}


def _check_read(values: Mapping[str, Any], problems: list[str]) -> None:
    if bool(values["queue"]) == bool(values["topic"]):
        problems.append("queue: name one, or a topic with a subscription")
    elif values["topic"] and not values["subscription"]:
        problems.append("subscription: is missing (a topic is read by its subscriptions)")


def _target(
    values: Mapping[str, Any], prefix: str, problems: list[str], *, needed: bool
) -> Target | None:
    def name(base: str) -> str:
        return prefix + base[0].upper() + base[1:] if prefix else base

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
