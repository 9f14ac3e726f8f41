"""Where a namespace is and how to authenticate there, from a connection string."""

from __future__ import annotations

from dataclasses import dataclass

from pairbus.client.auth import SasKey, SasToken, Signer
from pairbus.names import AMQP_PORT, AMQPS_PORT, join_host, parse_connection_string

__all__ = ["Endpoint", "endpoint_of"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Host, port and whether to encrypt; `authority` is the peer's name in addresses."""

    host: str
    port: int
    tls: bool
    authority: str

    def audience(self, entity: str) -> str:
        """The audience of a token for the entity."""
        return f"sb://{self.authority}/{entity}"

    def address(self, entity: str) -> str:
        """The address of a link to the entity."""
        return f"amqps://{self.authority}/{entity}"


def endpoint_of(text: str) -> tuple[Endpoint, Signer, str | None]:
    """The endpoint, the key or signature, and the entity path of a connection string.

    Only in emulator mode the port of the string is used (5672 by default), without encryption.

    Raises:
        ValueError: something is missing; the message names it, and holds no secret.
    """
    parts = parse_connection_string(text)
    parts.require_credential()
    if parts.is_emulator:
        endpoint = Endpoint(parts.host, parts.port or AMQP_PORT, False, parts.authority)
    else:
        endpoint = Endpoint(parts.host, AMQPS_PORT, True, join_host(parts.host))
    credential: Signer
    if parts.signature is not None:
        credential = SasToken(parts.signature)
    else:
        credential = SasKey(parts.key_name or "", parts.key or "")
    return endpoint, credential, parts.entity_path
