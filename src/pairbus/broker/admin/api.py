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

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from pairbus.broker.admin.answers import Answers, etag_of
from pairbus.broker.admin.atom import SERVICE_BUS, Entry, content_of, leaf, tag, timestamp
from pairbus.broker.admin.requests import Call, Target, read_call
from pairbus.broker.admin.xml_reader import read_queue, read_rule, read_subscription, read_topic
from pairbus.broker.auth.sas import Claims, KeyRing
from pairbus.broker.auth.tokens import verify_token
from pairbus.broker.entities.errors import (
    ArgumentError,
    BrokerError,
    EntityNotFoundError,
    PreconditionFailedError,
    UnauthorizedError,
)
from pairbus.broker.entities.model import (
    AccessRight,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.broker.entities.model_json import Description
from pairbus.broker.filters.compiled import check_rule
from pairbus.broker.server.http import Request, Response

if TYPE_CHECKING:
    from pairbus.broker.namespace.namespace import Namespace

PAGE = 100
"""Entities of one page at most."""

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
        self._answers = Answers(namespace, now, self._created)

    def handle(self, request: Request) -> Response:
        """Answer one request; a refusal is an answer too."""
        where = request.target.partition("?")[0]
        try:
            call = read_call(request, self._namespace.name)
            self._authorize(call)
            self._namespace.count_admin(self._counted(call.target))
            return self._dispatch(call)
        except BrokerError as error:
            return self._answers.refusal(error, where)

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
        return verify_token(token, audience, self._keys, self._now())

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
            return self._answers.feed(call, call.target.entity, "Publicly Listed Services", [])
        return self._answers.entry(200, self._answers.describe(call, found))

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
                created = self._answers.describe(call, self._namespace.create_queue(queue))
            else:
                topic = read_topic(element, name, None)
                created = self._answers.describe(call, self._namespace.create_topic(topic))
            return self._answers.entry(201, created)
        if is_queue:
            old_queue = self._namespace.get_queue(name)
            self._check_match(call, old_queue)
            queue = read_queue(element, name, old_queue)
            self._check_forward(call, queue)
            changed = self._answers.describe(call, self._namespace.update_queue(queue))
        else:
            old_topic = self._namespace.get_topic(name)
            self._check_match(call, old_topic)
            topic = read_topic(element, name, old_topic)
            changed = self._answers.describe(call, self._namespace.update_topic(topic))
        return self._answers.entry(200, changed)

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
        return self._answers.entry(200, self._answers.describe(call, found))

    def _put_subscription(self, call: Call) -> Response:
        target = call.target
        element = content_of(call.request.body, "SubscriptionDescription")
        if self._is_update(call):
            old = self._namespace.get_subscription(target.entity, target.subscription)
            self._check_match(call, old)
            changed = read_subscription(element, target.entity, target.subscription, old)
            self._check_forward(call, changed)
            changed = self._namespace.update_subscription(changed)
            return self._answers.entry(200, self._answers.describe(call, changed))
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
        return self._answers.entry(201, self._answers.describe(call, created))

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
        return self._answers.entry(200, self._answers.describe_rule(call, found))

    def _put_rule(self, call: Call) -> Response:
        target = call.target
        where = (target.entity, target.subscription)
        rule = check_rule(read_rule(content_of(call.request.body, "RuleDescription"), target.rule))
        if not self._is_update(call):
            created = self._namespace.create_rule(*where, rule)
            return self._answers.entry(201, self._answers.describe_rule(call, created))
        old = self._namespace.get_rule(*where, target.rule)
        self._check_match(call, old)
        rule = RuleDescription(old.name, rule.filter, rule.action, old.created_at_utc)
        changed = self._namespace.update_rule(*where, rule)
        return self._answers.entry(200, self._answers.describe_rule(call, changed))

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
        entries = [self._answers.describe_rule(call, rule) for rule in page]
        return self._answers.feed(call, f"{target.path}/rules", "Rules", entries, next_href)

    def _page(
        self,
        call: Call,
        path: str,
        title: str,
        found: Sequence[QueueDescription | TopicDescription | SubscriptionDescription],
    ) -> Response:
        page, next_href = self._slice(call, found, path)
        return self._answers.feed(
            call, path, title, [self._answers.describe(call, d) for d in page], next_href
        )

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
        return self._answers.entry(200, entry)

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
