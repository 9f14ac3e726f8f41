"""A namespace and how to authenticate to it, as the syphon's processes pass it on.

A target holds a reference to a secret rather than the secret where that is possible: the name of an
environment variable, a file, or an importable factory of a credential.
"""

import contextlib
import importlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairbus.client.errors import ClientError
from pairbus.names import namespace_or_host, parse_connection_string
from pairbus.syphon.refusals import CREDENTIAL_FAILED

__all__ = ["CredentialFailedError", "OptionError", "Target", "credential_errors"]


class OptionError(ValueError):
    """An option is missing or wrong; the message names it, and never shows a secret."""


class CredentialFailedError(ClientError):
    """The user's credential gave no token, perhaps for a moment.

    The text has only the type of the credential's error, which may contain a secret; the error
    itself is the cause.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(CREDENTIAL_FAILED, f"the credential failed: {type(cause).__name__}")


@contextlib.contextmanager
def credential_errors() -> Iterator[None]:
    """Raise an error of the user's credential, which may be of any type, as our own.

    Raises:
        CredentialFailedError: the credential failed.
    """
    try:
        yield
    except (OptionError, ClientError):
        raise
    except Exception as exc:
        raise CredentialFailedError(exc) from exc


@dataclass(frozen=True, repr=False)
class Target:
    """A namespace and how to authenticate to it. Its repr shows no secret.

    Args:
        reference: `env:NAME`, `file:PATH` or a connection string; empty with a credential.
        host: host name of the namespace, with a credential.
        credential: `package.module:function` that returns a credential.
        ca_file: PEM file of the certificate authorities to trust instead of the system's.
    """

    reference: str = ""
    host: str = ""
    credential: str = ""
    ca_file: str = ""

    def connection_string(self) -> str | None:
        """Look the connection string up; None where a credential is used.

        Raises:
            OptionError: the variable or file is not there.
        """
        return _resolve(self.reference) if self.reference else None

    @property
    def namespace(self) -> str:
        """The first label of the namespace's host, or the host where it is an address."""
        text = self.connection_string()
        return namespace_or_host(parse_connection_string(text).authority if text else self.host)

    @property
    def entity_path(self) -> str | None:
        """The one queue or topic that the connection string is for; None for the namespace."""
        text = self.connection_string()
        return parse_connection_string(text).entity_path if text else None

    def token_credential(self) -> Any:
        """Call the credential factory.

        Raises:
            OptionError: it cannot be imported.
            CredentialFailedError: it failed.
        """
        module, _, name = self.credential.partition(":")
        try:
            factory = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as exc:
            raise OptionError(
                f"credential: {self.credential!r} is not an importable module:function ({exc})"
            ) from None
        with credential_errors():
            return factory()

    def __repr__(self) -> str:
        if not self.reference:
            return f"<Target {self.host}>"
        shown = self.reference if self.reference.startswith(("env:", "file:")) else "***"
        return f"<Target {shown}>"


def _resolve(reference: str) -> str:
    kind, _, rest = reference.partition(":")
    if kind == "env":
        value = os.environ.get(rest, "")
        if not value:
            raise OptionError(f"connectionString: the environment variable {rest} is not set")
        return value.strip()
    if kind == "file":
        try:
            return Path(rest.removeprefix("//")).read_text().strip()
        except OSError as exc:
            raise OptionError(f"connectionString: {rest}: {exc.strerror}") from None
    return reference
