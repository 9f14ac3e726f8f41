"""Shared access signatures, computed by the tests themselves."""

from pairbus.client.auth import SasKey


def make_token(resource: str, key_name: str, key: str, *, expires_at: float) -> str:
    """A token for a resource (`sb://host/entity`), valid until `expires_at` (Unix seconds)."""
    return SasKey(key_name, key, lifetime=0).token(resource, expires_at).text
