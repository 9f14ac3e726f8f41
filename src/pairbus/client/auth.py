"""Tokens for `$cbs`: signed with a shared access key, given as text, or from a token credential."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote_plus

AAD_SCOPE = "https://servicebus.azure.net/.default"
_SAS = "servicebus.windows.net:sastoken"


class Token(NamedTuple):
    """A token with its type and the time (seconds since 1970) when it expires."""

    text: str
    kind: str
    expires_on: float

    def __repr__(self) -> str:
        return f"Token(kind={self.kind!r}, expires_on={self.expires_on})"


class Signer(Protocol):
    """Makes tokens without waiting."""

    def token(self, audience: str, now: float) -> Token:
        """A token for the audience; `now` is seconds since 1970."""


class SasKey:
    """A shared access key: signs a token for each audience."""

    def __init__(self, name: str, key: str, *, lifetime: float = 3600.0) -> None:
        self.name = name
        self._key = key
        self.lifetime = lifetime

    def token(self, audience: str, now: float) -> Token:
        """A signature that lasts `lifetime` seconds."""
        expires = int(now + self.lifetime)
        resource = quote_plus(audience)
        signed = f"{resource}\n{expires}".encode()
        digest = hmac.new(self._key.encode(), signed, hashlib.sha256).digest()
        signature = quote_plus(base64.b64encode(digest))
        text = (
            f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}"
            f"&skn={quote_plus(self.name)}"
        )
        return Token(text, _SAS, expires)

    def __repr__(self) -> str:
        return f"SasKey(name={self.name!r})"


class SasToken:
    """A shared access signature: it is used as it is, until it expires."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.expires_on = 2**53 / 1000.0
        for part in text.partition(" ")[2].split("&"):
            if part.startswith("se=") and part[3:].isdigit():
                self.expires_on = float(part[3:])

    def token(self, audience: str, now: float) -> Token:
        """The signature."""
        return Token(self._text, _SAS, self.expires_on)

    def __repr__(self) -> str:
        return f"SasToken(expires_on={self.expires_on})"


class Replaceable:
    """A key or signature that the application may replace: it is looked up for each token."""

    def __init__(self, look_up: Callable[[], SasKey | SasToken]) -> None:
        self._look_up = look_up

    def token(self, audience: str, now: float) -> Token:
        """A token by the current key or signature."""
        return self._look_up().token(audience, now)


class TokenCredential:
    """A credential in the style of azure-identity: an object with `get_token(scope)`.

    It may be slow, because it calls a server. In `pairbus.client.aio`, `get_token` is a coroutine.
    """

    def __init__(self, credential: Any) -> None:
        self.credential = credential

    def __repr__(self) -> str:
        return f"TokenCredential({type(self.credential).__name__})"


def provider_of(credential: Any) -> Signer | TokenCredential:
    """Return the token provider of a credential: one of ours, or any that the SDK accepts.

    Those of the SDK are an `AzureNamedKeyCredential`, an `AzureSasCredential`, and the credentials
    of azure-identity.
    """
    if hasattr(credential, "token") and callable(credential.token):
        signer: Signer = credential
        return signer
    if hasattr(credential, "named_key"):
        return Replaceable(lambda: SasKey(*credential.named_key))
    if hasattr(credential, "signature"):
        return Replaceable(lambda: SasToken(credential.signature))
    if hasattr(credential, "get_token"):
        return TokenCredential(credential)
    raise TypeError(
        "a credential needs get_token(scope), named_key, signature or token(audience, now)"
    )
