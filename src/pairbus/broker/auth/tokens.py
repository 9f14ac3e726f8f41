"""Verifies both kinds of tokens: shared access signatures, and the broker's bearer tokens."""

from __future__ import annotations

from pairbus.broker.auth.jwt import is_jwt, verify_jwt
from pairbus.broker.auth.sas import Claims, KeyRing
from pairbus.broker.auth.sas import verify_token as verify_signature


def verify_token(token: str, audience: str, keys: KeyRing, now: float) -> Claims:
    """The claims of a token presented for *audience*; UnauthorizedError if it is refused."""
    token = token.removeprefix("Bearer ")
    if is_jwt(token):
        return verify_jwt(token, keys.namespace_rules, now)
    return verify_signature(token, audience, keys, now)
