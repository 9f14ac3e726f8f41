"""Count the messages of the backlog queues through the administration of the secondary."""

import contextlib
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pairbus.exceptions import SyphonError
from pairbus.names import (
    backlog_prefix,
    format_connection_string,
    parse_connection_string,
    sort_backlog_queues,
)
from pairbus.syphon.setup import Setup
from pairbus.syphon.status_records import QueueCounts
from pairbus.syphon.target import CredentialFailedError, OptionError

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

__all__ = ["KEY_REFUSED", "NO_NAMESPACE", "QueueCounter"]

KEY_REFUSED = (
    "the key or token is refused (a key of one queue or topic needs EntityPath=<its name> in the "
    "connection string)"
)
NO_NAMESPACE = "there is no such namespace (name not found)"


class QueueCounter:
    """Counts the backlog queues of one syphon.

    Args:
        setup: which namespace and queues.
        count_call: called with the queue of each management call, which is charged.
    """

    def __init__(
        self, setup: Setup, count_call: Callable[[str], None] = lambda _path: None
    ) -> None:
        self._setup = setup
        self._count_call = count_call
        self._queues = setup.queues
        self._admin: ServiceBusAdministrationClient | None = None

    def discover(self) -> tuple[str, ...]:
        """Return the backlog queues of this pair that exist, in the order of their numbers."""
        self._count_call(backlog_prefix(self._setup.primary_name))
        found = sort_backlog_queues(self._setup.primary_name, self._client().list_queues())
        self._queues = tuple(queue.name for _, queue in found)
        return self._queues

    def count(self) -> tuple[QueueCounts, ...]:
        """Return the counts of the queues that exist."""
        from azure.core.exceptions import ResourceNotFoundError

        client = self._client()
        queues: list[QueueCounts] = []
        for path in self._queues:
            self._count_call(path)
            with contextlib.suppress(ResourceNotFoundError):
                found = client.get_queue_runtime_properties(path)
                queues.append(
                    QueueCounts(
                        path,
                        found.active_message_count or 0,
                        found.dead_letter_message_count or 0,
                    )
                )
        return tuple(queues)

    def check(self) -> tuple[QueueCounts, ...] | None:
        """Find the backlog queues and count them; None without the right Manage.

        Raises:
            SyphonError: why the secondary cannot be used, in one line.
        """
        host, only = self._setup.secondary_host, self._setup.secondary.entity_path
        if only is not None:
            if [path.lower() for path in self._queues] != [only.lower()]:
                raise SyphonError(
                    f"secondary {host}: the key is of the queue {only} alone (EntityPath), and "
                    f"there are {len(self._queues)} backlog queues: use a key of the namespace"
                )
            return None  # a key of one queue cannot list or count queues
        from azure.core.exceptions import (
            AzureError,
            ClientAuthenticationError,
            HttpResponseError,
        )

        try:
            self.discover()
            queues = self.count()
        except ClientAuthenticationError as exc:
            if "claim(s) are required" in str(exc):
                return None  # the token is valid, but has no right to count
            raise SyphonError(f"secondary {host}: {KEY_REFUSED}") from None
        except HttpResponseError as exc:
            if exc.status_code in (401, 403):
                return None  # the syphon itself needs no counts
            raise SyphonError(f"secondary {host}: {exc.reason or exc.message}") from None
        except AzureError as exc:
            if "Failed to resolve" in str(exc) or "getaddrinfo" in str(exc):
                raise SyphonError(f"secondary {host}: {NO_NAMESPACE}") from None
            raise SyphonError(f"secondary {host}: cannot be reached ({_short(exc)})") from None
        except Exception as exc:
            if not self._setup.secondary.credential or isinstance(exc, OptionError | SyphonError):
                raise
            cause = exc if isinstance(exc, CredentialFailedError) else CredentialFailedError(exc)
            raise SyphonError(f"secondary {host}: {cause.description}") from exc
        if not queues:
            raise SyphonError(
                f"secondary {host}: there are no backlog queues {self._setup.queues[0]} …; "
                "create them first (`pairbus pair create`)"
            )
        return queues

    def close(self) -> None:
        """Close the connection."""
        if self._admin is not None:
            with contextlib.suppress(Exception):
                self._admin.close()

    def _client(self) -> "ServiceBusAdministrationClient":
        if self._admin is None:
            from azure.servicebus.management import ServiceBusAdministrationClient

            target = self._setup.secondary
            options: dict[str, Any] = {"retry_total": 1}
            if target.ca_file:
                options["connection_verify"] = target.ca_file
            text = target.connection_string()
            if text is None:
                credential = target.token_credential()
                text = _as_connection_string(target.host, credential)
            if text is None:
                self._admin = ServiceBusAdministrationClient(target.host, credential, **options)
            elif parse_connection_string(text).is_emulator:
                from pairbus.administration import admin_client

                self._admin = admin_client(text, **options)
            else:
                self._admin = ServiceBusAdministrationClient.from_connection_string(text, **options)
        return self._admin


def _as_connection_string(host: str, credential: Any) -> str | None:
    """The SDK's administration client accepts keys and signatures in this form only."""
    if hasattr(credential, "named_key"):
        name, key = credential.named_key
        return format_connection_string(host, key_name=name, key=key)
    if hasattr(credential, "signature"):
        return format_connection_string(host, signature=credential.signature)
    return None


def _short(exc: BaseException) -> str:
    text = " ".join(str(exc).split())
    found = re.search(r"\[Errno -?\d+\] ([\w ]+)", text)
    return found[1] if found else text[:120]
