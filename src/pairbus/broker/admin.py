"""The administration API: Atom over HTTP, as ``ServiceBusAdministrationClient`` speaks it.

``AdminApi.handle`` answers one request. It decides at once, on the loop that owns the namespace;
whoever writes the answer to the client waits for the namespace's commit first, so that what was
answered is durable. Paths:

    /{queue or topic}                                        GET PUT DELETE
    /{topic}/subscriptions                                   GET
    /{topic}/subscriptions/{name}                            GET PUT DELETE
    /{topic}/subscriptions/{name}/rules                      GET
    /{topic}/subscriptions/{name}/rules/{name}               GET PUT DELETE
    /$Resources/queues, /$Resources/topics                   GET
    /$namespaceinfo                                          GET

A PUT creates; with ``If-Match`` it updates. A queue or topic that does not exist is answered to GET
with an empty feed, as the service does.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote

from .admin_call import Call, Target, read_call
from .admin_read import read_queue, read_rule, read_subscription, read_topic
from .admin_write import write_queue, write_rule, write_subscription, write_topic
from .atom import (
    SERVICE_BUS,
    Entry,
    content_of,
    entry_document,
    error_document,
    feed_document,
    leaf,
    tag,
    timestamp,
)
from .entities.errors import (
    ArgumentError,
    BrokerError,
    EntityNotFoundError,
    PreconditionFailedError,
    UnauthorizedError,
)
from .entities.model import (
    AccessRight,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from .entities.model_json import Description, dump_description
from .entities.sqlfilter import check_rule
from .httpserver import Request, Response
from .sas import Claims, KeyRing, verify_token

if TYPE_CHECKING:
    from .namespace import Namespace

PAGE = 100
"""Entities of one page at most."""

_XML = "application/atom+xml;type=entry;charset=utf-8"
_FEED = "application/atom+xml;type=feed;charset=utf-8"
_ERROR = "application/xml;charset=utf-8"
_SUB_CODES = {400: "40000", 403: "40300", 404: "40400", 409: "40900", 412: "41200"}
_WORDS = {
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    412: "Precondition Failed",
}
T = TypeVar("T")


class MethodNotAllowedError(BrokerError):
    """The path exists, and this is not what one can do with it."""

    http_status = 405


class AdminApi:
    """Answers the requests of administration clients.

    Args:
        namespace: What is administered.
        keys: Who may do it.
        now: The time in seconds since the epoch, for the expiry of tokens.
        created_at: When the namespace was created, in seconds since the epoch.
    """

    def __init__(
        self,
        namespace: Namespace,
        keys: KeyRing,
        now: Callable[[], float],
        created_at: float | None = None,
    ) -> None:
        self._namespace = namespace
        self._keys = keys
        self._now = now
        self._created = datetime.fromtimestamp(now() if created_at is None else created_at, UTC)

    def handle(self, request: Request) -> Response:
        """Answer one request; a refusal is an answer too."""
        where = request.target.partition("?")[0]
        try:
            call = read_call(request, self._namespace.name)
            self._authorize(call)
            self._namespace.count_admin(self._counted(call.target))
            return self._dispatch(call)
        except BrokerError as error:
            return self._refusal(error, where)

    # --- requests ---------------------------------------------------------------------------------

    def _authorize(self, call: Call) -> None:
        path = call.target.path
        claims = self._claims(call, "authorization", path)
        claims.require(AccessRight.MANAGE, path)

    def _claims(self, call: Call, header: str, path: str) -> Claims:
        token = call.request.headers.get(header, "")
        if not token:
            raise UnauthorizedError("MissingToken: The authorization header was not found.")
        audience = f"sb://{call.host}/{path}"
        return verify_token(token.removeprefix("Bearer "), audience, self._keys, self._now())

    def _counted(self, target: Target) -> str:
        try:
            return self._namespace.entity(target.path).path
        except EntityNotFoundError:
            return target.path or "$namespace"

    def _dispatch(self, call: Call) -> Response:
        method = call.request.method
        actions: dict[tuple[str, str], Callable[[Call], Response]] = {
            ("entity", "GET"): self._get_entity,
            ("entity", "PUT"): self._put_entity,
            ("entity", "DELETE"): self._delete_entity,
            ("subscription", "GET"): self._get_subscription,
            ("subscription", "PUT"): self._put_subscription,
            ("subscription", "DELETE"): self._delete_subscription,
            ("rule", "GET"): self._get_rule,
            ("rule", "PUT"): self._put_rule,
            ("rule", "DELETE"): self._delete_rule,
            ("queues", "GET"): self._list_queues,
            ("topics", "GET"): self._list_topics,
            ("subscriptions", "GET"): self._list_subscriptions,
            ("rules", "GET"): self._list_rules,
            ("namespace", "GET"): self._get_namespace,
        }
        action = actions.get((call.target.kind, method))
        if action is None:
            raise MethodNotAllowedError(f"The method {method[:16]} is not allowed here.")
        return action(call)

    # --- queues and topics ------------------------------------------------------------------------

    def _get_entity(self, call: Call) -> Response:
        found = self._find_entity(call.target.entity)
        if found is None:
            return self._feed(call, call.target.entity, "Publicly Listed Services", [])
        return self._entry(call, 200, self._describe(call, found))

    def _find_entity(self, name: str) -> QueueDescription | TopicDescription | None:
        try:
            return self._namespace.get_queue(name)
        except EntityNotFoundError:
            pass
        try:
            return self._namespace.get_topic(name)
        except EntityNotFoundError:
            return None

    def _put_entity(self, call: Call) -> Response:
        name = call.target.entity
        element = content_of(call.request.body, "QueueDescription", "TopicDescription")
        if not call.has_message_size and element.find("MaxMessageSizeInKilobytes") is not None:
            raise ArgumentError("MaxMessageSizeInKilobytes needs api-version 2021-05 or later.")
        is_queue = element.name == "QueueDescription"
        if not self._is_update(call):
            if is_queue:
                queue = read_queue(element, name, None)
                self._check_forward(call, queue)
                created = self._describe(call, self._namespace.create_queue(queue))
            else:
                topic = read_topic(element, name, None)
                created = self._describe(call, self._namespace.create_topic(topic))
            return self._entry(call, 201, created)
        if is_queue:
            old_queue = self._namespace.get_queue(name)
            self._check_match(call, old_queue)
            queue = read_queue(element, name, old_queue)
            self._check_forward(call, queue)
            changed = self._describe(call, self._namespace.update_queue(queue))
        else:
            old_topic = self._namespace.get_topic(name)
            self._check_match(call, old_topic)
            topic = read_topic(element, name, old_topic)
            changed = self._describe(call, self._namespace.update_topic(topic))
        return self._entry(call, 200, changed)

    def _delete_entity(self, call: Call) -> Response:
        found = self._find_entity(call.target.entity)
        if found is None:
            raise EntityNotFoundError(f"Entity '{call.target.entity}' was not found.")
        self._check_match(call, found)
        if isinstance(found, QueueDescription):
            self._namespace.delete_queue(found.name)
        else:
            self._namespace.delete_topic(found.name)
        return Response(200)

    # --- subscriptions ----------------------------------------------------------------------------

    def _get_subscription(self, call: Call) -> Response:
        target = call.target
        found = self._namespace.get_subscription(target.entity, target.subscription)
        return self._entry(call, 200, self._describe(call, found))

    def _put_subscription(self, call: Call) -> Response:
        target = call.target
        element = content_of(call.request.body, "SubscriptionDescription")
        if self._is_update(call):
            old = self._namespace.get_subscription(target.entity, target.subscription)
            self._check_match(call, old)
            changed = read_subscription(element, target.entity, target.subscription, old)
            self._check_forward(call, changed)
            changed = self._namespace.update_subscription(changed)
            return self._entry(call, 200, self._describe(call, changed))
        topic = self._namespace.get_topic(target.entity)
        subscription = read_subscription(element, topic.name, target.subscription, None)
        self._check_forward(call, subscription)
        rule_element = element.find("DefaultRuleDescription")
        rule = None
        if rule_element is not None and not rule_element.is_nil:
            named = rule_element.find("Name")
            rule_name = named.text if named is not None and named.text else "$Default"
            rule = check_rule(read_rule(rule_element, rule_name))
        created = self._namespace.create_subscription(subscription, rule)
        return self._entry(call, 201, self._describe(call, created))

    def _delete_subscription(self, call: Call) -> Response:
        target = call.target
        found = self._namespace.get_subscription(target.entity, target.subscription)
        self._check_match(call, found)
        self._namespace.delete_subscription(target.entity, target.subscription)
        return Response(200)

    # --- rules ------------------------------------------------------------------------------------

    def _get_rule(self, call: Call) -> Response:
        target = call.target
        found = self._namespace.get_rule(target.entity, target.subscription, target.rule)
        return self._entry(call, 200, self._describe_rule(call, found))

    def _put_rule(self, call: Call) -> Response:
        target = call.target
        where = (target.entity, target.subscription)
        rule = check_rule(read_rule(content_of(call.request.body, "RuleDescription"), target.rule))
        if not self._is_update(call):
            created = self._namespace.create_rule(*where, rule)
            return self._entry(call, 201, self._describe_rule(call, created))
        old = self._namespace.get_rule(*where, target.rule)
        self._check_match(call, old)
        rule = RuleDescription(old.name, rule.filter, rule.action, old.created_at_utc)
        changed = self._namespace.update_rule(*where, rule)
        return self._entry(call, 200, self._describe_rule(call, changed))

    def _delete_rule(self, call: Call) -> Response:
        target = call.target
        found = self._namespace.get_rule(target.entity, target.subscription, target.rule)
        self._check_match(call, found)
        self._namespace.delete_rule(target.entity, target.subscription, target.rule)
        return Response(200)

    # --- lists and the namespace ------------------------------------------------------------------

    def _list_queues(self, call: Call) -> Response:
        return self._page(call, "$Resources/queues", "Queues", self._namespace.list_queues())

    def _list_topics(self, call: Call) -> Response:
        return self._page(call, "$Resources/topics", "Topics", self._namespace.list_topics())

    def _list_subscriptions(self, call: Call) -> Response:
        topic = call.target.entity
        found = self._namespace.list_subscriptions(topic)
        return self._page(call, f"{topic}/subscriptions", "Subscriptions", found)

    def _list_rules(self, call: Call) -> Response:
        target = call.target
        rules = self._namespace.list_rules(target.entity, target.subscription)
        page, next_href = self._slice(call, rules, f"{target.path}/rules")
        entries = [self._describe_rule(call, rule) for rule in page]
        return self._feed(call, f"{target.path}/rules", "Rules", entries, next_href)

    def _page(
        self,
        call: Call,
        path: str,
        title: str,
        found: Sequence[QueueDescription | TopicDescription | SubscriptionDescription],
    ) -> Response:
        page, next_href = self._slice(call, found, path)
        return self._feed(call, path, title, [self._describe(call, d) for d in page], next_href)

    def _slice(self, call: Call, found: Sequence[T], path: str) -> tuple[Sequence[T], str | None]:
        skip = call.number("$skip", 0)
        top = min(call.number("$top", PAGE), PAGE)
        page = found[skip : skip + top]
        if not page or skip + len(page) >= len(found):
            return page, None
        following = f"&%24skip={skip + len(page)}&%24top={top}"
        return page, call.href(path) + following

    def _get_namespace(self, call: Call) -> Response:
        created = timestamp(self._created)
        content = tag(
            "NamespaceInfo",
            leaf("CreatedTime", created)
            + leaf("MessagingSKU", "Premium")
            + leaf("MessagingUnits", "1")
            + leaf("ModifiedTime", created)
            + leaf("Name", self._namespace.name)
            + leaf("NamespaceType", "Messaging"),
            f' xmlns="{SERVICE_BUS}"',
        )
        href = call.href("$namespaceinfo")
        entry = Entry(href, self._namespace.name, self._created, self._created, content)
        return self._entry(call, 200, entry)

    # --- conditions -------------------------------------------------------------------------------

    def _is_update(self, call: Call) -> bool:
        return "if-match" in call.request.headers

    def _check_match(self, call: Call, description: Description) -> None:
        wanted = call.request.headers.get("if-match", "*").strip()
        if wanted != "*" and etag_of(description) not in {
            part.strip() for part in wanted.split(",")
        }:
            raise PreconditionFailedError(
                "The entity has been changed since it was read (If-Match does not match its ETag)."
            )

    def _check_forward(
        self, call: Call, description: QueueDescription | SubscriptionDescription
    ) -> None:
        """Who forwards must have a right on the target: by the token, or by a second one."""
        for header, target in (
            ("servicebussupplementaryauthorization", description.forward_to),
            (
                "servicebusdlqsupplementaryauthorization",
                description.forward_dead_lettered_messages_to,
            ),
        ):
            if not target or self._claims(call, "authorization", call.target.path).allows(
                AccessRight.MANAGE, target
            ):
                continue
            self._claims(call, header, target).require(AccessRight.SEND, target)

    # --- answers ----------------------------------------------------------------------------------

    def _describe(
        self, call: Call, found: QueueDescription | TopicDescription | SubscriptionDescription
    ) -> Entry:
        path = found.path if isinstance(found, SubscriptionDescription) else found.name
        runtime = self._namespace.runtime(path)
        match found:
            case QueueDescription():
                content = write_queue(
                    found, runtime, call.address, has_message_size=call.has_message_size
                )
            case TopicDescription():
                content = write_topic(found, runtime, has_message_size=call.has_message_size)
            case SubscriptionDescription():
                content = write_subscription(found, runtime, call.address)
        return Entry(
            call.href(path),
            found.name,
            runtime.created_at_utc,
            runtime.updated_at_utc,
            content,
            etag_of(found),
        )

    def _describe_rule(self, call: Call, rule: RuleDescription) -> Entry:
        created = rule.created_at_utc or self._created
        href = call.href(f"{call.target.path}/rules/{rule.name}")
        return Entry(href, rule.name, created, created, write_rule(rule), etag_of(rule))

    def _entry(self, call: Call, status: int, entry: Entry) -> Response:
        headers = {"content-type": _XML}
        if entry.etag:
            headers["etag"] = entry.etag
        return Response(status, entry_document(entry, self._namespace.name), headers)

    def _feed(
        self,
        call: Call,
        path: str,
        title: str,
        entries: Sequence[Entry],
        next_href: str | None = None,
    ) -> Response:
        body = feed_document(
            call.href(path),
            title,
            entries,
            self._namespace.name,
            updated=datetime.fromtimestamp(self._now(), UTC),
            next_href=next_href,
        )
        return Response(200, body, {"content-type": _FEED})

    def _refusal(self, error: BrokerError, where: str) -> Response:
        status = error.http_status
        prefix = ""
        if status in _SUB_CODES:
            prefix = f"SubCode={_SUB_CODES[status]}. {_WORDS[status]}. "
        when = timestamp(datetime.fromtimestamp(self._now(), UTC))
        detail = (
            f"{prefix}{error.description} TrackingId:{uuid.uuid4()}, "
            f"SystemTracker:{self._namespace.name}:{unquote(where).strip('/')[:300]}, "
            f"Timestamp:{when}"
        )
        return Response(status, error_document(status, detail), {"content-type": _ERROR})


def etag_of(description: Description) -> str:
    """A text that changes when the description does, and tells nothing of its keys."""
    digest = hashlib.sha256(dump_description(description).encode()).hexdigest()
    return f'"{digest[:32]}"'
