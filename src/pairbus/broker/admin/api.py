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

from pairbus.broker.admin.answers import Answers, Entry, etag_of
from pairbus.broker.admin.atom import SERVICE_BUS, Element, content_of, leaf, tag
from pairbus.broker.admin.entity_xml import read_description
from pairbus.broker.admin.requests import Call, Target, read_call
from pairbus.broker.admin.rule_xml import read_rule
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
from pairbus.broker.server.http import Request, Response

if TYPE_CHECKING:
    from pairbus.broker.entities.entity import Entity
    from pairbus.broker.namespace.administration import Administration

_LISTS = ("queues", "topics", "subscriptions", "rules")
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
            self._namespace.context.operations.call(path, "admin")
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
            ("subscription", "GET"): self._get_entity,
            ("subscription", "PUT"): self._put_entity,
            ("subscription", "DELETE"): self._delete_entity,
            ("rule", "GET"): self._get_rule,
            ("rule", "PUT"): self._put_rule,
            ("rule", "DELETE"): self._delete_rule,
            **dict.fromkeys([(kind, "GET") for kind in _LISTS], self._list),
            ("namespace", "GET"): self._get_namespace,
        }
        action = actions.get((call.target.kind, method))
        if action is None:
            raise MethodNotAllowedError(f"The method {method[:16]} is not allowed here.")
        return action(call)

    # --- queues, topics and subscriptions ---------------------------------------------------------

    def _get_entity(self, call: Call) -> Response:
        target = call.target
        if not target.subscription and self._namespace.catalog.find(target.entity) is None:
            return self._answers.feed(call, target.entity, "Publicly Listed Services", [])
        found = self._entity(target).description
        return self._answers.entry(200, self._answers.describe(call, found))

    def _entity(self, target: Target) -> Entity:
        catalog = self._namespace.catalog
        if target.subscription:
            return catalog.subscription_entity(target.entity, target.subscription)
        found = catalog.find(target.entity)
        if found is None:
            raise EntityNotFoundError(f"Entity '{target.entity}' was not found.")
        return found

    def _put_entity(self, call: Call) -> Response:
        target, namespace = call.target, self._namespace
        start: EntityDescription
        if target.subscription:
            element = content_of(call.request.body, "SubscriptionDescription")
            topic = namespace.catalog.topic_entity(target.entity)
            start = SubscriptionDescription(topic.path, target.subscription)
        else:
            element = content_of(call.request.body, "QueueDescription", "TopicDescription")
            is_queue = element.name == "QueueDescription"
            start = (QueueDescription if is_queue else TopicDescription)(target.entity)
        old = None
        if call.is_update:
            old = self._entity(target).description
            if type(old) is not type(start):
                raise EntityNotFoundError(f"There is no {element.name} '{target.entity}'.")
            self._check_match(call, old)
            start = replace(start, name=old.name)
        description = read_description(element, start, old, call.api_version)
        self._check_forward(call, description)
        if old is not None:
            changed = namespace.update(description)
            return self._answers.entry(200, self._answers.describe(call, changed))
        created = namespace.create(description, _default_rule(element))
        return self._answers.entry(201, self._answers.describe(call, created))

    def _delete_entity(self, call: Call) -> Response:
        found = self._entity(call.target)
        self._check_match(call, found.description)
        self._namespace.delete(found)
        return Response(200)

    # --- rules ------------------------------------------------------------------------------------

    def _rule(self, target: Target) -> RuleDescription:
        entity = self._namespace.catalog.subscription_entity(target.entity, target.subscription)
        return entity.rules.get(target.rule)

    def _get_rule(self, call: Call) -> Response:
        found = self._rule(call.target)
        return self._answers.entry(200, self._answers.describe_rule(call, found))

    def _put_rule(self, call: Call) -> Response:
        target, is_update = call.target, call.is_update
        rule = read_rule(content_of(call.request.body, "RuleDescription"), target.rule)
        if is_update:
            old = self._rule(target)
            self._check_match(call, old)
            rule = replace(rule, name=old.name, created_at_utc=old.created_at_utc)
        saved = self._namespace.create_rule(
            target.entity, target.subscription, rule, is_update=is_update
        )
        entry = self._answers.describe_rule(call, saved)
        return self._answers.entry(200 if is_update else 201, entry)

    def _delete_rule(self, call: Call) -> Response:
        target = call.target
        self._check_match(call, self._rule(target))
        self._namespace.delete_rule(target.entity, target.subscription, target.rule)
        return Response(200)

    # --- lists and the namespace ------------------------------------------------------------------

    def _list(self, call: Call) -> Response:
        target, namespace = call.target, self._namespace
        describe = self._answers.describe
        match target.kind:
            case "queues":
                return self._page(call, "Queues", namespace.list_queues(), describe)
            case "topics":
                return self._page(call, "Topics", namespace.list_topics(), describe)
            case "subscriptions":
                found = namespace.list_subscriptions(target.entity)
                return self._page(call, "Subscriptions", found, describe)
        rules = namespace.list_rules(target.entity, target.subscription)
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
        created = self._created
        content = tag(
            "NamespaceInfo",
            leaf("CreatedTime", created)
            + leaf("MessagingSKU", self._namespace.tier.capitalize())
            + leaf("MessagingUnits", 1 if self._namespace.tier == "premium" else None)
            + leaf("ModifiedTime", created)
            + leaf("Name", self._namespace.name)
            + leaf("NamespaceType", "Messaging"),
            f' xmlns="{SERVICE_BUS}"',
        )
        href = call.href("$namespaceinfo")
        entry = Entry(href, self._namespace.name, created, created, content)
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


def _default_rule(element: Element) -> RuleDescription | None:
    """The rule with which a subscription is to begin, if the client gives one."""
    rule = element.find_value("DefaultRuleDescription")
    return None if rule is None else read_rule(rule, rule.find_text("Name") or "$Default")
