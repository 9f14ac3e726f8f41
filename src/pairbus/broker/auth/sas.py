"""Shared access signatures: tokens that prove possession of a key without sending it.

A token is ``SharedAccessSignature sr=<resource>&sig=<signature>&se=<expiry>&skn=<key name>``. The
signature is HMAC-SHA256 over the resource *as it is written in the token* and the expiry, so the
text of ``sr`` is used undecoded: clients differ in how they escape it. A token is valid for the
resource it names and for everything below it; a token for the root of the namespace is valid for
all its entities. The scheme (``sb``, ``amqps``, ``https``, …), the port, the case and a trailing
slash make no difference.

A wrong key, an unknown key name and a changed token get the same error. Only a client with a valid
signature learns that its token has expired or is for another resource.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote_plus, urlsplit

from pairbus.broker.entities.errors import UnauthorizedError
from pairbus.broker.entities.model import AccessRight, AuthorizationRule, entity_key
from pairbus.broker.entities.model_limits import MAX_PATH_LENGTH
from pairbus.names import split_host

PREFIX = "SharedAccessSignature "
MAX_TOKEN_LENGTH = 8192
ALL_RIGHTS = (AccessRight.MANAGE, AccessRight.SEND, AccessRight.LISTEN)

END_OF_TIME = 10**12
"""The latest expiry that is stored; a client may sign a token with any."""
INVALID = "InvalidSignature: The token has an invalid signature."


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of a namespace: its own, and those of its entities.

    ``entity_rules`` gives the authorization rules of a queue or topic by path; none for a path
    that does not exist. ``entity_paths`` gives the paths of all queues and topics.
    """

    namespace_rules: tuple[AuthorizationRule, ...] = field(repr=False)
    entity_rules: Callable[[str], Iterable[AuthorizationRule]] = field(
        default=lambda path: (), repr=False
    )
    entity_paths: Callable[[], Iterable[str]] = field(default=lambda: (), repr=False)

    def find(self, key_name: str, scope: str) -> Iterable[AuthorizationRule]:
        """The rules of that name which may sign for *scope*."""
        for rule in self.namespace_rules:
            if rule.key_name == key_name:
                yield rule
        segments = scope.split("/") if scope else []
        for end in range(1, len(segments) + 1):
            path = "/".join(segments[:end])
            if len(path) > MAX_PATH_LENGTH:
                return
            for rule in self.entity_rules(path):
                if rule.key_name == key_name:
                    yield rule


@dataclass(frozen=True, slots=True)
class Claims:
    """The rights of a verified token, their scope and their expiry."""

    key_name: str
    scope: str
    rights: frozenset[AccessRight]
    expires_at: float

    def covers(self, path: str) -> bool:
        """Whether the token is for this path or something above it."""
        return _is_within(entity_key(path), self.scope)

    def allows(self, right: AccessRight, path: str) -> bool:
        """Whether the holder has the right on this path. Manage includes Send and Listen."""
        return self.covers(path) and (right in self.rights or AccessRight.MANAGE in self.rights)

    def require(self, right: AccessRight, path: str) -> None:
        """Raise UnauthorizedError when the holder lacks the right on this path."""
        if not self.allows(right, path):
            raise missing_claim(f"'{right.value}'", path)


def missing_claim(rights: str, path: str) -> UnauthorizedError:
    """The error for a client whose tokens do not grant one of these rights on a path."""
    return UnauthorizedError(
        f"Unauthorized access. {rights} claim(s) are required to perform this operation. "
        f"Resource: '{path}'."
    )


def verify_key(key_name: str, key: str, keys: KeyRing) -> list[Claims]:
    """The claims of a client that presents the key itself (SASL PLAIN); they do not expire.

    A key of an entity is valid for each entity that has a rule of this name and key: the client
    does not name the entity.

    Raises:
        UnauthorizedError: No rule has this name and key.
    """
    scopes = [("", keys.namespace_rules)]
    scopes += [(entity_key(path), tuple(keys.entity_rules(path))) for path in keys.entity_paths()]
    found = []
    for scope, rules in scopes:
        for rule in rules:
            for known in (rule.primary_key, rule.secondary_key):
                matches = hmac.compare_digest(known.encode(), key.encode())
                if matches and known and rule.key_name == key_name:
                    rights = frozenset(rule.rights)
                    found.append(Claims(key_name, scope, rights, float(END_OF_TIME)))
    if not found:
        raise UnauthorizedError("The key name or the key is not valid.")
    return found


def split_resource(resource: str) -> tuple[str, str]:
    """Host and entity path of a resource, in the form in which they are compared.

    ``sb://Host:5672/Orders/`` gives ``("host", "orders")``. A resource without a scheme is a path.
    """
    if "://" not in resource:
        return "", entity_key(resource)
    try:
        parts = urlsplit(resource)
        host = split_host(parts.netloc)[0] if parts.netloc else ""
        return host, entity_key(unquote_plus(parts.path))
    except ValueError:
        raise UnauthorizedError(INVALID) from None


def _host_of(text: str) -> str:
    try:
        return split_host(text)[0]
    except ValueError:
        return ""


def verify_signature(token: str, audience: str, keys: KeyRing, now: float) -> Claims:
    """The claims of a token presented for *audience*; UnauthorizedError if it is refused.

    *audience* is the entity that the client wants to use, as a URL or a path.
    """
    fields = _parse(token)
    encoded, expiry = fields["sr"], fields["se"]
    try:
        given = base64.b64decode(unquote_plus(fields["sig"]), validate=True)
        expires_at = int(expiry)
    except ValueError:
        raise UnauthorizedError(INVALID) from None
    wanted_host, wanted = split_resource(audience)
    host, scope = split_resource(unquote_plus(encoded))
    first, _, rest = scope.partition("/")
    if wanted_host and not host and _host_of(first) == wanted_host:
        # The JavaScript client signs the host without a scheme when it forwards.
        host, scope = wanted_host, rest
    key_name = unquote_plus(fields["skn"])
    candidates = list(keys.find(key_name, scope))
    if not candidates and unquote_plus(key_name) != key_name:
        # azure-servicebus escapes the key name twice.
        candidates = list(keys.find(unquote_plus(key_name), scope))
    # An unknown name costs one signature as well, so that timing does not reveal names.
    unknown = AuthorizationRule("", (), "unknown")
    signer = find_signer(candidates or [unknown], given, lambda key: _sign(key, encoded, expiry))
    if signer is unknown:
        signer = None
    if signer is None:
        raise UnauthorizedError(INVALID)
    if now >= expires_at:
        raise UnauthorizedError("ExpiredToken: The token is expired.")
    if (wanted_host and host and wanted_host != host) or not _is_within(wanted, scope):
        raise UnauthorizedError("InvalidAudience: The authorization token audience is invalid.")
    return Claims(
        key_name=signer.key_name,
        scope=scope,
        rights=frozenset(signer.rights),
        expires_at=float(min(expires_at, END_OF_TIME)),
    )


def find_signer(
    rules: Iterable[AuthorizationRule], signature: bytes, sign: Callable[[str], bytes]
) -> AuthorizationRule | None:
    """Return the first rule with a key that makes this signature; the others are tried as well."""
    found = None
    for rule in rules:
        for key in (rule.primary_key, rule.secondary_key):
            matches = hmac.compare_digest(sign(key), signature)
            if matches and key and found is None:
                found = rule
    return found


def _sign(key: str, encoded: str, expiry: str) -> bytes:
    return hmac.new(key.encode(), f"{encoded}\n{expiry}".encode(), hashlib.sha256).digest()


def _parse(token: str) -> dict[str, str]:
    if len(token) > MAX_TOKEN_LENGTH or not token.startswith(PREFIX):
        raise UnauthorizedError("MalformedToken: The token is not a shared access signature.")
    fields: dict[str, str] = {}
    for pair in token[len(PREFIX) :].split("&"):
        name, _, value = pair.partition("=")
        if name in fields:
            raise UnauthorizedError("MalformedToken: The token names a field twice.")
        fields[name] = value
    if not {"sr", "sig", "se", "skn"} <= fields.keys():
        raise UnauthorizedError("MalformedToken: The token lacks a field.")
    return fields


def _is_within(path: str, scope: str) -> bool:
    return not scope or path == scope or path.startswith(scope + "/")
