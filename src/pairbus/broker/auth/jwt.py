"""Bearer tokens, as Microsoft Entra ID would issue them, signed with a key of the namespace.

A client with a token credential presents a JSON Web Token instead of a shared access signature. The
broker has no identity provider and accepts only tokens that it can verify: those signed (HS256)
with a key of the namespace, which only clients that have the key can create. A token is valid for
the whole namespace and grants the rights of its `roles`, the built-in roles of the service.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence

from pairbus.broker.auth.sas import (
    ALL_RIGHTS,
    END_OF_TIME,
    INVALID,
    MAX_TOKEN_LENGTH,
    Claims,
    KeyRing,
    find_signer,
    verify_signature,
)
from pairbus.broker.entities.errors import UnauthorizedError
from pairbus.broker.entities.model import AccessRight, AuthorizationRule

AUDIENCE = "https://servicebus.azure.net"
ROLES: dict[str, tuple[AccessRight, ...]] = {
    "Azure Service Bus Data Owner": ALL_RIGHTS,
    "Azure Service Bus Data Sender": (AccessRight.SEND,),
    "Azure Service Bus Data Receiver": (AccessRight.LISTEN,),
}
OWNER, SENDER, RECEIVER = ROLES
_HEAD = {"alg": "HS256", "typ": "JWT"}


def verify_token(token: str, audience: str, keys: KeyRing, now: float) -> Claims:
    """The claims of a bearer token, or of a shared access signature for *audience*.

    Raises:
        UnauthorizedError: The token is refused.
    """
    token = token.removeprefix("Bearer ")
    if token.startswith("eyJ") and token.count(".") == 2:
        return verify_jwt(token, keys.namespace_rules, now)
    return verify_signature(token, audience, keys, now)


def make_jwt(key: str, *, roles: Sequence[str] = (OWNER,), expires_at: float) -> str:
    """A token signed with *key*, valid until *expires_at* (Unix seconds)."""
    payload = {
        "aud": AUDIENCE,
        "iss": "pairbus",
        "sub": "developer",
        "roles": list(roles),
        "exp": int(expires_at),
    }
    text = f"{_encode(_HEAD)}.{_encode(payload)}"
    return f"{text}.{_base64(_sign(key, text))}"


def verify_jwt(token: str, rules: Iterable[AuthorizationRule], now: float) -> Claims:
    """The claims of a token; UnauthorizedError if it is refused.

    *rules* are the namespace's own: the key of a rule with the right Manage may sign tokens.
    """
    if len(token) > MAX_TOKEN_LENGTH:
        raise UnauthorizedError("MalformedToken: The token is too long.")
    text, _, signature = token.rpartition(".")
    head, _, payload = text.partition(".")
    try:
        given = _bytes(signature)
        if json.loads(_bytes(head)).get("alg") != "HS256":
            raise UnauthorizedError(INVALID)
        signers = (rule for rule in rules if AccessRight.MANAGE in rule.rights)
        signer = find_signer(signers, given, lambda key: _sign(key, text))
        claims = json.loads(_bytes(payload))
        expires_at = float(claims["exp"])
        roles = [str(role) for role in claims.get("roles", ())]
        audience = str(claims.get("aud", "")).rstrip("/")
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise UnauthorizedError(INVALID) from None
    if signer is None:
        raise UnauthorizedError(INVALID)
    if now >= expires_at:
        raise UnauthorizedError("ExpiredToken: The token is expired.")
    if audience != AUDIENCE:
        raise UnauthorizedError("InvalidAudience: The authorization token audience is invalid.")
    rights = frozenset(right for role in roles for right in ROLES.get(role, ()))
    return Claims(signer.key_name, "", rights, min(expires_at, END_OF_TIME))


def _sign(key: str, text: str) -> bytes:
    # A different key from that of shared access signatures, so that the two cannot be mixed up.
    own = hmac.new(key.encode(), b"pairbus bearer token", hashlib.sha256).digest()
    return hmac.new(own, text.encode(), hashlib.sha256).digest()


def _encode(value: object) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
