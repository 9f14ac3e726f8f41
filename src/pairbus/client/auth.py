"""Tokens for `$cbs`: from a shared access key, a ready signature, or a token credential."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote_plus

AAD_SCOPE = "https://servicebus.azure.net/.default"


class Token(NamedTuple):
    """A token with its type and the time (seconds since 1970) when it expires."""

    text: str
    kind: str
    expires_on: float

    def __repr__(self) -> str:
        return f"Token(kind={self.kind!r}, expires_on={self.expires_on})"


class TokenProvider(Protocol):
    """What gives tokens for audiences."""

    def token(self, audience: str) -> Token:
        """A fresh token for the audience."""
        ...


class SasKey:
    """A shared access key: signs a token for each audience."""

    def __init__(self, name: str, key: str, *, lifetime: float = 3600.0) -> None:
        self.name = name
        self._key = key
        self.lifetime = lifetime

    def token(self, audience: str) -> Token:
        """A signature that lasts `lifetime` seconds."""
        expires = int(time.time() + self.lifetime)
        resource = quote_plus(audience)
        signed = f"{resource}\n{expires}".encode()
        digest = hmac.new(self._key.encode(), signed, hashlib.sha256).digest()
        signature = quote_plus(base64.b64encode(digest))
        text = (
            f"SharedAccessSignature sr={resource}&sig={signature}&se={expires}"
            f"&skn={quote_plus(self.name)}"
        )
        return Token(text, "servicebus.windows.net:sastoken", expires)

    def __repr__(self) -> str:
        return f"SasKey(name={self.name!r})"


class SasToken:
    """A signature that somebody else made; it is used as it is, until it expires."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.expires_on = 2**53 / 1000.0
        for part in text.partition(" ")[2].split("&"):
            if part.startswith("se=") and part[3:].isdigit():
                self.expires_on = float(part[3:])

    def token(self, audience: str) -> Token:
        """The signature."""
        return Token(self._text, "servicebus.windows.net:sastoken", self.expires_on)

    def __repr__(self) -> str:
        return f"SasToken(expires_on={self.expires_on})"


class CredentialTokens:
    """Tokens of an azure-identity style credential: an object with `get_token(scope)`."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    def token(self, audience: str) -> Token:
        """An access token; the credential caches as it sees fit."""
        access = self._credential.get_token(AAD_SCOPE)
        return Token(access.token, "jwt", float(access.expires_on))

    def __repr__(self) -> str:
        return f"CredentialTokens({type(self._credential).__name__})"


class NamedKey:
    """A key that may change: an object with `named_key`, as `AzureNamedKeyCredential`."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    def token(self, audience: str) -> Token:
        """A signature by the key as it is now."""
        name, key = self._credential.named_key
        return SasKey(name, key).token(audience)

    def __repr__(self) -> str:
        return "NamedKey()"


class Signature:
    """A signature that may be replaced: an object with `signature`, as `AzureSasCredential`."""

    def __init__(self, credential: Any) -> None:
        self._credential = credential

    def token(self, audience: str) -> Token:
        """The signature as it is now."""
        return SasToken(self._credential.signature).token(audience)

    def __repr__(self) -> str:
        return "Signature()"


def provider_of(credential: Any) -> TokenProvider:
    """The token provider for a credential: one of ours, or any that the SDK takes."""
    if hasattr(credential, "token") and callable(credential.token):
        provider: TokenProvider = credential
        return provider
    if hasattr(credential, "named_key"):
        return NamedKey(credential)
    if hasattr(credential, "signature"):
        return Signature(credential)
    if hasattr(credential, "get_token"):
        return CredentialTokens(credential)
    raise TypeError("a credential needs get_token(scope), named_key, signature or token(audience)")
