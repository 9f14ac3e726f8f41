"""Where a namespace is, and with what key: connection strings as the SDK reads them."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from pairbus.client.auth import SasKey, SasToken, TokenProvider

AMQP_PORT, AMQPS_PORT = 5672, 5671


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Host, port and whether to encrypt; `authority` is how the peer knows itself."""

    host: str
    port: int
    tls: bool
    authority: str

    def audience(self, entity: str) -> str:
        """What a token for the entity is for."""
        return f"sb://{self.authority}/{entity}"

    def address(self, entity: str) -> str:
        """The address of a link to the entity."""
        return f"amqps://{self.authority}/{entity}"


def parse_connection_string(text: str) -> tuple[Endpoint, TokenProvider, str | None]:
    """The endpoint, the key or signature, and the entity path if one is named.

    As in the SDK: emulator mode is exactly `UseDevelopmentEmulator=true`; only there is the port
    kept (5672 if none) and the connection not encrypted.

    Raises:
        ValueError: something is missing; the message names it, and holds no secret.
    """
    fields: dict[str, str] = {}
    for part in text.strip().rstrip(";").split(";"):
        name, separator, value = part.partition("=")
        if not separator:
            raise ValueError("connection string: a part has no '='")
        fields[name.strip().lower()] = value.strip()
    if "endpoint" not in fields:
        raise ValueError("connection string: Endpoint is missing")
    endpoint = parse_endpoint(
        fields["endpoint"], emulator=fields.get("usedevelopmentemulator") == "true"
    )
    credential: TokenProvider
    if "sharedaccesssignature" in fields:
        credential = SasToken(fields["sharedaccesssignature"])
    elif "sharedaccesskeyname" in fields and "sharedaccesskey" in fields:
        credential = SasKey(fields["sharedaccesskeyname"], fields["sharedaccesskey"])
    else:
        raise ValueError(
            "connection string: SharedAccessKeyName and SharedAccessKey, or "
            "SharedAccessSignature, are missing"
        )
    return endpoint, credential, fields.get("entitypath")


def parse_endpoint(text: str, *, emulator: bool = False) -> Endpoint:
    """The endpoint of `sb://host[:port]/` or a bare host name."""
    split = urlsplit(text if "//" in text else f"sb://{text}")
    host = split.hostname
    if not host:
        raise ValueError("connection string: Endpoint names no host")
    if emulator:
        authority = split.netloc.rpartition("@")[2]
        return Endpoint(host, split.port or AMQP_PORT, False, authority)
    return Endpoint(host, AMQPS_PORT, True, host)
