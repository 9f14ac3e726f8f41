"""The exceptions of pairbus. All derive from the SDK's `ServiceBusError`.

```
ServiceBusError                            azure.servicebus.exceptions
└── PairingError                           base of everything pairbus raises
    ├── PairUnavailableError               no namespace confirmed: .entity .primary .secondary
    ├── PartlySentError                    a redirected send stopped half-way: .taken .not_taken
    ├── ClientClosedError                  (also a ValueError) the client is closed
    ├── ClientFaultedError                 the client was faulted: .reason
    ├── NotCancellableError                scheduled in the backlog: .sequence_numbers
    ├── ReservedPropertyError              (also a ValueError) .names
    ├── OversizeError                      (also MessageSizeExceededError) .size .limit
    └── SyphonError                        the syphon failed
```

Existing `except ServiceBusError` blocks keep working. If a send fails because of an
outage and is not redirected, the caller gets the SDK's error.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, TypeVar

from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

ErrorT = TypeVar("ErrorT", bound=Exception)

__all__ = [
    "ClientClosedError",
    "ClientFaultedError",
    "NotCancellableError",
    "OversizeError",
    "PairUnavailableError",
    "PairingError",
    "PartlySentError",
    "ReservedPropertyError",
    "SyphonError",
]


class PairingError(ServiceBusError):
    """Base of everything that pairbus raises."""


class PairUnavailableError(PairingError):
    """Neither namespace confirmed the message.

    Attributes:
        entity: The queue or topic that the messages were for.
        primary: Why the primary did not confirm it.
        secondary: Why no backlog queue confirmed it; None if none was tried.
    """

    def __init__(
        self, entity: str, primary: BaseException | None, secondary: BaseException | None
    ) -> None:
        self.entity = entity
        self.primary = primary
        self.secondary = secondary
        reasons = (
            describe(primary, "failed over"),
            describe(secondary, "no backlog queue is in rotation"),
        )
        first, second = (reason.removesuffix(".") for reason in reasons)
        super().__init__(
            f"Neither namespace accepted the messages for {entity!r}. "
            f"Primary: {first}. Secondary: {second}."
        )


class PartlySentError(PairingError):
    """A redirected list or batch stopped half-way; a redirected send is not atomic.

    Attributes:
        taken: The messages that a backlog queue confirmed.
        not_taken: The messages that must be sent again.
        cause: Why it stopped.
    """

    def __init__(
        self, entity: str, taken: Sequence[Any], not_taken: Sequence[Any], cause: BaseException
    ) -> None:
        self.entity = entity
        self.taken = tuple(taken)
        self.not_taken = tuple(not_taken)
        self.cause = cause
        super().__init__(
            f"The backlog took {len(self.taken)} of {len(self.taken) + len(self.not_taken)} "
            f"messages for {entity!r}, then stopped: {describe(cause, 'unknown')}."
        )


class ClientClosedError(PairingError, ValueError):
    """The paired client is closed, or its SDK client was closed directly.

    Also a `ValueError`, which a sender of a closed client raises in the SDK.
    """


class ClientFaultedError(PairingError):
    """The client was faulted; every use of it and of its senders and receivers raises this.

    Attributes:
        reason: Why it was faulted.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The client was faulted: {reason}")


class NotCancellableError(PairingError):
    """A message scheduled while failed over waits in the backlog and cannot be cancelled.

    Attributes:
        sequence_numbers: The numbers, all negative, that cannot be cancelled.
    """

    def __init__(self, sequence_numbers: Sequence[int]) -> None:
        self.sequence_numbers = tuple(sequence_numbers)
        super().__init__(
            "Scheduled while failed over, so it waits in a backlog queue and cannot be cancelled: "
            + ", ".join(str(number) for number in self.sequence_numbers)
        )


class ReservedPropertyError(PairingError, ValueError):
    """A message uses an application property that the envelope needs. Nothing was sent.

    Attributes:
        names: The reserved names that the message uses.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            f"These application properties are reserved by pairbus: {', '.join(self.names)}"
        )


class OversizeError(PairingError, MessageSizeExceededError):
    """A message fits the primary but no backlog queue, and `oversize="refuse"` is set.

    Attributes:
        size: The message's encoded size with the aliases, in bytes.
        limit: The largest message of a backlog queue, in bytes.
    """

    def __init__(self, size: int, limit: int) -> None:
        self.size = size
        self.limit = limit
        ServiceBusError.__init__(
            self,
            f"With the aliases the message has {size} bytes; a backlog queue takes {limit}. "
            "In an outage it could not be sent.",
        )


class SyphonError(PairingError):
    """The syphon failed."""


def bare(error: ErrorT) -> ErrorT:
    """A copy of `error` without its traceback and its cause.

    An error that is stored would keep alive the objects on the stack where it was raised, even the
    application's variables, and it grows each time it is raised.
    """
    made = twin(error)
    if made is not error:
        for name, value in made.__dict__.items():
            # The SDK's errors have the error that they were made of, and its traceback, as fields.
            if isinstance(value, BaseException | TracebackType):
                made.__dict__[name] = None
        made.__cause__ = made.__context__ = None
    return made


def twin(error: ErrorT) -> ErrorT:
    """A copy of `error` that another caller may change; `error` itself if it cannot be copied.

    `copy.copy` cannot copy the SDK's errors: it calls `__init__` with `args`, and they take
    keywords only.
    """
    try:
        made = error.__class__.__new__(error.__class__, *error.args)
    except Exception:  # noqa: BLE001  # `__new__` of its class takes other arguments
        return error
    made.args = error.args
    made.__dict__.update(error.__dict__)
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    made.__suppress_context__ = error.__suppress_context__
    if "__notes__" in made.__dict__:
        made.__notes__ = list(made.__notes__)
    return made


def add_text(error: Exception, text: str) -> None:
    """Append `text` to the message of `error`."""
    error.args = (str(error).removesuffix(".") + text, *error.args[1:])
    if isinstance(error, ServiceBusError):
        error.message = error.args[0]


def add_source(error: ErrorT, source: str) -> ErrorT:
    """Prefix an SDK error's message with its source, such as `backlog queue 3 of contoso-dr`."""
    is_foreign = isinstance(error, ServiceBusError) and not isinstance(error, PairingError)
    if is_foreign and source not in str(error):
        error.args = (f"{source}: {error}{_token_answer(error)}", *error.args[1:])
        error.message = error.args[0]  # type: ignore[attr-defined]
    return error


def describe(error: BaseException | None, otherwise: str = "") -> str:
    """The class and message of `error` in one line; `otherwise` if there is no error."""
    if error is None:
        return otherwise
    text = " ".join(f"{error}{_token_answer(error)}".split())
    name = type(error).__name__
    return f"{name}: {text[:400]}" if text else name


def _token_answer(error: BaseException) -> str:
    """The answer of the token service, which the text of the SDK's error leaves out."""
    answer = getattr(getattr(error, "inner_exception", None), "status_description", None)
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
    return f" {text}" if isinstance(text, str) and text not in str(error) else ""
