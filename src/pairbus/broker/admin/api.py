"""The administration API: Atom over HTTP, as ``ServiceBusAdministrationClient`` speaks it.

``AdminApi.handle`` answers one request, on the event loop that owns the namespace. The HTTP server
waits for the namespace's commit before it writes the answer, so that a confirmed change is durable.
Paths:

    /{queue or topic}                                        GET PUT DELETE
    /{topic}/subscriptions                                   GET
    /{topic}/subscriptions/{name}                            GET PUT DELETE
    /{topic}/subscriptions/{name}/rules                      GET
    /{topic}/subscriptions/{name}/rules/{name}               GET PUT DELETE
    /$Resources/queues, /$Resources/topics                   GET
    /$namespaceinfo                                          GET

A PUT creates; with ``If-Match`` it updates. The answer to a GET of a queue or topic that does not
exist is an empty feed, as in the service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from pairbus.broker.admin.answers import Answers, etag_of
from pairbus.broker.admin.atom import SERVICE_BUS, Element, Entry, content_of, leaf, tag, timestamp
from pairbus.broker.admin.requests import Call, Target, read_call
from pairbus.broker.admin.xml_reader import D, read_description, read_rule
from pairbus.broker.auth.jwt import verify_token
from pairbus.broker.auth.sas import Claims, KeyRing
from pairbus.broker.entities.errors import (
    BrokerError,
    EntityNotFoundError,
    PreconditionFailedError,
    UnauthorizedError,
)
from pairbus.broker.entities.model import (
    AccessRight,
    EntityDescription,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from pairbus.broker.entities.model_json import Description
from pairbus.broker.filters.compiled import check_rule
from pairbus.broker.server.http import Request, Response

if TYPE_CHECKING:
    from pairbus.broker.namespace.administration import Administration

PAGE = 100
"""The largest number of entities on one page."""

T = TypeVar("T")


class MethodNotAllowedError(BrokerError):
    """The path exists, but it does not support the method."""

    http_status = 405


class AdminApi:
    """Answers the requests of administration clients.

    Args:
        namespace: The namespace that is administered.
        keys: The keys that tokens are verified with.
        now: The time in seconds since the epoch, for the expiry of tokens.
        created_at: When the namespace was created, in seconds since the epoch.
        charge: Takes the credits of an operation on a path, or raises ServerBusyError.
    """

    def __init__(
        self,
        namespace: Administration,
        keys: KeyRing,
        now: Callable[[], float],
        created_at: float,
        charge: Callable[[str], None],
    ) -> None:
        self._namespace = namespace
        self._keys = keys
        self._now = now
        self._charge = charge
        self._created = datetime.fromtimestamp(created_at, UTC)
        self._answers = Answers(namespace, now, self._created)

    def handle(self, request: Request) -> Response:
        """Answer one request; a refused request is answered with an error document."""
        where = request.target.partition("?")[0]
        try:
            call = read_call(request, self._namespace.name)
            self._authorize(call)
            path = self._path_to_charge(call.target)
            self._charge(path)
            self._namespace.count_admin(path)
            return self._dispatch(call)
        except BrokerError as error:
            return self._answers.refusal(error, where)

    # --- requests ---------------------------------------------------------------------------------

    def _authorize(self, call: Call) -> None:
        resource = call.target.resource
        self._claims(call, "authorization", resource).require(AccessRight.MANAGE, resource)

    def _claims(self, call: Call, header: str, path: str) -> Claims:
        token = call.request.headers.get(header, "")
        if not token:
            raise UnauthorizedError("MissingToken: The authorization header was not found.")
        audience = f"sb://{call.host}/{path}"
        return verify_token(token, audience, self._keys, self._now())

    def _path_to_charge(self, target: Target) -> str:
        """The entity to which the operation is charged."""
        try:
            return self._namespace.catalog.entity(target.path).path
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
        found = self._namespace.catalog.describe(call.target.entity)
        if found is None:
            return self._answers.feed(call, call.target.entity, "Publicly Listed Services", [])
        return self._answers.entry(200, self._answers.describe(call, found))

    def _put_entity(self, call: Call) -> Response:
        name, namespace = call.target.entity, self._namespace
        element = content_of(call.request.body, "QueueDescription", "TopicDescription")
        if element.name == "QueueDescription":
            old_queue = namespace.get_queue(name) if call.is_update else None
            queue = self._read(call, element, QueueDescription(name), old_queue)
            changed: EntityDescription = (
                namespace.create_queue(queue)
                if old_queue is None
                else namespace.update_queue(queue)
            )
        else:
            old_topic = namespace.get_topic(name) if call.is_update else None
            topic = self._read(call, element, TopicDescription(name), old_topic)
            changed = (
                namespace.create_topic(topic)
                if old_topic is None
                else namespace.update_topic(topic)
            )
        return self._changed_response(call, changed)

    def _read(self, call: Call, element: Element, start: D, old: D | None) -> D:
        """The description of a request; refused if the client may not make this change."""
        if old is not None:
            self._check_match(call, old)
            start = replace(start, name=old.name)
        description = read_description(element, start, old, call.api_version)
        self._check_forward(call, description)
        return description

    def _changed_response(self, call: Call, description: EntityDescription) -> Response:
        status = 200 if call.is_update else 201
        return self._answers.entry(status, self._answers.describe(call, description))

    def _delete_entity(self, call: Call) -> Response:
        found = self._namespace.catalog.find(call.target.entity)
        if found is None:
            raise EntityNotFoundError(f"Entity '{call.target.entity}' was not found.")
        self._check_match(call, found.description)
        self._namespace.delete_entity(found)
        return Response(200)

    # --- subscriptions ----------------------------------------------------------------------------

    def _get_subscription(self, call: Call) -> Response:
        target = call.target
        found = self._namespace.get_subscription(target.entity, target.subscription)
        return self._answers.entry(200, self._answers.describe(call, found))

    def _put_subscription(self, call: Call) -> Response:
        target, namespace = call.target, self._namespace
        element = content_of(call.request.body, "SubscriptionDescription")
        start = SubscriptionDescription(
            namespace.get_topic(target.entity).name, target.subscription
        )
        if call.is_update:
            old = namespace.get_subscription(target.entity, target.subscription)
            subscription = self._read(call, element, start, old)
            return self._changed_response(call, namespace.update_subscription(subscription))
        subscription = self._read(call, element, start, None)
        rule_element = element.find("DefaultRuleDescription")
        rule = None
        if rule_element is not None and not rule_element.is_nil:
            named = rule_element.find("Name")
            rule_name = named.text if named is not None and named.text else "$Default"
            rule = check_rule(read_rule(rule_element, rule_name))
        return self._changed_response(call, namespace.create_subscription(subscription, rule))

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
        if not call.is_update:
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
        return self._page(call, "Queues", self._namespace.list_queues(), self._answers.describe)

    def _list_topics(self, call: Call) -> Response:
        return self._page(call, "Topics", self._namespace.list_topics(), self._answers.describe)

    def _list_subscriptions(self, call: Call) -> Response:
        found = self._namespace.list_subscriptions(call.target.entity)
        return self._page(call, "Subscriptions", found, self._answers.describe)

    def _list_rules(self, call: Call) -> Response:
        rules = self._namespace.list_rules(call.target.entity, call.target.subscription)
        return self._page(call, "Rules", rules, self._answers.describe_rule)

    def _page(
        self, call: Call, title: str, found: Sequence[T], describe: Callable[[Call, T], Entry]
    ) -> Response:
        path = call.target.resource
        skip = call.number("$skip", 0)
        top = min(call.number("$top", PAGE), PAGE)
        page = [describe(call, one) for one in found[skip : skip + top]]
        next_href = None
        if page and skip + len(page) < len(found):
            next_href = f"{call.href(path)}&%24skip={skip + len(page)}&%24top={top}"
        return self._answers.feed(call, path, title, page, next_href)

    def _get_namespace(self, call: Call) -> Response:
        created = timestamp(self._created)
        content = tag(
            "NamespaceInfo",
            leaf("CreatedTime", created)
            + leaf("MessagingSKU", self._namespace.tier.capitalize())
            + (leaf("MessagingUnits", "1") if self._namespace.tier == "premium" else "")
            + leaf("ModifiedTime", created)
            + leaf("Name", self._namespace.name)
            + leaf("NamespaceType", "Messaging"),
            f' xmlns="{SERVICE_BUS}"',
        )
        href = call.href("$namespaceinfo")
        entry = Entry(href, self._namespace.name, self._created, self._created, content)
        return self._answers.entry(200, entry)

    # --- conditions -------------------------------------------------------------------------------

    def _check_match(self, call: Call, description: Description) -> None:
        wanted = call.request.headers.get("if-match", "*").strip()
        if wanted != "*" and etag_of(description) not in {
            part.strip() for part in wanted.split(",")
        }:
            raise PreconditionFailedError(
                "The entity has been changed since it was read (If-Match does not match its ETag)."
            )

    def _check_forward(self, call: Call, description: EntityDescription) -> None:
        """Forwarding needs a right on the target, granted by the token or by a second one."""
        for header, field in (
            ("servicebussupplementaryauthorization", "forward_to"),
            ("servicebusdlqsupplementaryauthorization", "forward_dead_lettered_messages_to"),
        ):
            target = getattr(description, field, None)
            if not target or self._claims(call, "authorization", call.target.resource).allows(
                AccessRight.MANAGE, target
            ):
                continue
            self._claims(call, header, target).require(AccessRight.SEND, target)
