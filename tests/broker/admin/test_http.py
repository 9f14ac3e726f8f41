"""The administration API as HTTP: tokens, ETags, addresses, and bodies that mean harm."""

import http.client
import time
from xml.etree import ElementTree

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    ServiceBusAdministrationClient,
)

from pairbus.administration import admin_client
from tests.sas import make_token

SB = "{http://schemas.microsoft.com/netservices/2010/10/servicebus/connect}"
ATOM = "{http://www.w3.org/2005/Atom}"
ROOT = "RootManageSharedAccessKey"


def body(content="<QueueDescription/>", kind="QueueDescription"):
    return (
        '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml">'
        f"{content}</content></entry>"
    ).encode()


class Raw:
    def __init__(self, ns):
        self.ns = ns

    def token(self, resource=None, name=ROOT, key="SAS_KEY_VALUE", lasts=60):
        resource = f"sb://127.0.0.1:{self.ns.port}" if resource is None else resource
        return make_token(resource, name, key, expires_at=time.time() + lasts)

    def __call__(self, method, path, content=None, *, token="", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.ns.port, timeout=10)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            headers["Authorization"] = token or self.token()
        try:
            connection.request(method, path, content, headers)
            response = connection.getresponse()
            text = response.read()
            return response.status, dict(response.getheaders()), text
        finally:
            connection.close()


@pytest.fixture(scope="module")
def raw(ns):
    return Raw(ns)


def refusal(answer, status):
    assert answer[0] == status, answer
    error = ElementTree.fromstring(answer[2])
    assert error.tag == "Error"
    assert error.findtext("Code") == str(status)
    detail = error.findtext("Detail")
    assert "TrackingId:" in detail
    assert "SAS_KEY_VALUE" not in detail
    return detail


# --- tokens --------------------------------------------------------------------------------------


def test_request_without_a_token_is_refused(raw):
    assert "MissingToken" in refusal(raw("GET", "/$Resources/queues", token=None), 401)


def test_request_of_a_foreign_web_page_is_refused_whatever_its_token(raw, ns, name):
    # Its own name was made to point to this machine, so that the browser asks no permission.
    host = f"evil.example:{ns.port}"
    token = raw.token(f"http://{host}")
    page = {"Host": host, "Origin": f"http://{host}"}
    assert raw("PUT", f"/{name}", body(), token=token, **page)[0] == 403
    assert raw("PUT", f"/{name}", body(), Origin="https://evil.example")[0] == 403
    assert raw("PUT", f"/{name}", body(), Origin=f"http://127.0.0.1:{ns.port}")[0] == 201
    assert raw("DELETE", f"/{name}", token=token, **page)[0] == 403
    assert raw("DELETE", f"/{name}")[0] == 200


def test_wrong_key_is_refused_and_says_no_more(raw):
    for token in (raw.token(key="wrong"), raw.token(name="Nobody")):
        detail = refusal(raw("GET", "/$namespaceinfo", token=token), 401)
        assert detail.startswith("InvalidSignature: The token has an invalid signature. Tracking")


def test_expired_token_is_refused(raw):
    assert "ExpiredToken" in refusal(raw("GET", "/q", token=raw.token(lasts=-1)), 401)


def test_token_for_another_entity_is_refused(raw, ns):
    token = raw.token(f"sb://127.0.0.1:{ns.port}/other")
    assert "InvalidAudience" in refusal(raw("PUT", "/mine", body(), token=token), 401)
    assert "InvalidAudience" in refusal(raw("GET", "/$Resources/queues", token=token), 401)


def test_unauthorized_request_does_nothing_and_is_not_counted(raw, ns):
    refusal(raw("PUT", "/never", body(), token=raw.token(key="wrong")), 401)
    assert b"<entry" not in raw("GET", "/never")[2]
    assert ns.operations.get("never", {}).get("admin", {}).get("calls") == 1


def test_token_of_an_entity_rule_manages_that_entity_alone(raw, ns, name):
    rights = [AccessRights.MANAGE, AccessRights.SEND, AccessRights.LISTEN]
    with ns.admin_client() as root:
        root.create_queue(name + "-target")
        root.create_queue(
            name,
            authorization_rules=[
                AuthorizationRule(
                    type="SharedAccessAuthorizationRule",
                    rights=rights,
                    key_name="owner",
                    primary_key="owner-key",
                    secondary_key="second-key",
                ),
                AuthorizationRule(
                    type="SharedAccessAuthorizationRule",
                    rights=[AccessRights.LISTEN],
                    key_name="reader",
                    primary_key="reader-key",
                ),
            ],
        )
    resource = f"sb://127.0.0.1:{ns.port}/{name}"
    for key in ("owner-key", "second-key"):
        token = raw.token(resource, "owner", key)
        assert raw("GET", f"/{name}", token=token)[0] == 200
    refusal(raw("GET", "/$Resources/queues", token=token), 401)
    refusal(raw("GET", f"/{name}-target", token=token), 401)
    reader = raw.token(resource, "reader", "reader-key")
    assert "'Manage' claim" in refusal(raw("DELETE", f"/{name}", token=reader), 401)

    # To forward, the owner needs a right on the target too, shown by a second token.
    forward = body(f"<QueueDescription><ForwardTo>{name}-target</ForwardTo></QueueDescription>")
    refusal(raw("PUT", f"/{name}", forward, token=token, If_Match="*"), 401)
    second = raw.token(f"sb://127.0.0.1:{ns.port}/{name}-target")
    headers = {"If-Match": "*", "ServiceBusSupplementaryAuthorization": second}
    assert raw("PUT", f"/{name}", forward, token=token, **headers)[0] == 200


@pytest.mark.sdk
def test_sdk_raises_what_its_user_knows(ns):
    wrong = ns.connection_string.replace("SAS_KEY_VALUE", "WRONG")
    with admin_client(wrong) as client, pytest.raises(ClientAuthenticationError) as caught:
        client.get_queue("q")
    assert "WRONG" not in str(caught.value)


@pytest.mark.sdk
def test_sdk_works_over_https_with_the_certificate(ns, name, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ns.certificate))
    client = ServiceBusAdministrationClient.from_connection_string(ns.connection_string)
    with client:
        client.create_queue(name)
        assert client.get_queue(name).name == name


@pytest.mark.sdk
def test_shared_access_signature_in_the_connection_string_works(ns, raw, name, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(ns.certificate))
    token = raw.token(f"https://127.0.0.1:{ns.port}")
    connection_string = (
        f"Endpoint=sb://127.0.0.1:{ns.port};SharedAccessSignature={token};"
        "UseDevelopmentEmulator=true"
    )
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        assert client.create_queue(name).name == name


@pytest.mark.sdk
@pytest.mark.slow
def test_token_credential_works_if_it_hands_out_shared_access_signatures(ns, raw, name):
    class Credential:
        def __init__(self, token):
            self.token = token

        def get_token(self, *scopes, **options):
            return AccessToken(self.token, int(time.time()) + 60)

    def client(token):
        return ServiceBusClient(
            "contoso.servicebus.windows.net",
            Credential(token),
            custom_endpoint_address=f"sb://127.0.0.1:{ns.port}",
            transport_type=TransportType.Amqp,
            connection_verify=str(ns.certificate),
            retry_total=0,
        )

    ns.create_queue(name)
    good = raw.token("sb://contoso.servicebus.windows.net")
    with client(good) as ours, ours.get_queue_sender(name) as sender:
        sender.send_messages(ServiceBusMessage("x"))
    # With an endpoint of its own the SDK makes a connection error of what was answered with 401.
    with client("eyJhbGciOi.x.y") as theirs, pytest.raises(ServiceBusError):
        theirs.get_queue_sender(name).__enter__()


# --- ETags ---------------------------------------------------------------------------------------


def test_etag_guards_against_a_lost_update(raw, name):
    status, headers, _ = raw("PUT", f"/{name}", body())
    assert status == 201
    first = headers["etag"]
    assert raw("GET", f"/{name}")[1]["etag"] == first
    change = body("<QueueDescription><MaxDeliveryCount>3</MaxDeliveryCount></QueueDescription>")
    status, headers, _ = raw("PUT", f"/{name}", change, If_Match=first)
    assert status == 200
    second = headers["etag"]
    assert second != first
    assert "41200" in refusal(raw("PUT", f"/{name}", change, If_Match=first), 412)
    assert raw("PUT", f"/{name}", change, If_Match=f'"x", {second}')[0] == 200
    refusal(raw("DELETE", f"/{name}", If_Match=first), 412)
    assert raw("DELETE", f"/{name}", If_Match=second)[0] == 200


def test_etags_of_rules_and_subscriptions(raw, ns, name):
    topic = body("<TopicDescription/>")
    raw("PUT", f"/{name}", topic)
    path = f"/{name}/subscriptions/s"
    etag = raw("PUT", path, body("<SubscriptionDescription/>"))[1]["etag"]
    change = body(
        "<SubscriptionDescription><MaxDeliveryCount>3</MaxDeliveryCount></SubscriptionDescription>"
    )
    assert raw("PUT", path, change, If_Match=etag)[0] == 200
    refusal(raw("PUT", path, change, If_Match=etag), 412)
    etag = raw("GET", f"{path}/rules/$Default")[1]["etag"]
    assert raw("PUT", f"{path}/rules/$Default", body("<RuleDescription/>"), If_Match=etag)[0] == 200


# --- addresses -----------------------------------------------------------------------------------


def test_names_with_slashes_work_escaped_and_plain(raw, name):
    assert raw("PUT", f"/{name}%2Fb", body())[0] == 201
    assert b"<QueueDescription" in raw("GET", f"/{name}/b")[2]
    assert raw("PUT", f"/{name}/t", body("<TopicDescription/>"))[0] == 201
    path = f"/{name}/t/Subscriptions/s"
    assert raw("PUT", path, body("<SubscriptionDescription/>"))[0] == 201
    assert raw("GET", f"/{name}%2Ft/subscriptions/s/rules/$default")[0] == 200
    entry = ElementTree.fromstring(raw("GET", path)[2])
    assert entry.findtext(f"{ATOM}title") == "s"


def test_missing_queue_is_an_empty_feed(raw):
    status, _, text = raw("GET", "/nothing-here?api-version=2017-04&enrich=False")
    assert status == 200
    feed = ElementTree.fromstring(text)
    assert feed.tag == f"{ATOM}feed"
    assert feed.find(f"{ATOM}entry") is None


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/$nonsense", 404),
        ("GET", "/$Resources/nonsense", 404),
        ("GET", "/t/subscriptions/s/nonsense", 404),
        ("GET", "/t/subscriptions/s/rules/r/x", 404),
        ("POST", "/q", 405),
        ("PUT", "/$Resources/queues", 405),
        ("DELETE", "/$namespaceinfo", 405),
        ("GET", "/$Resources/queues?$skip=-1", 400),
        ("GET", "/$Resources/queues?$top=x", 400),
        ("GET", "/$Resources/queues?api-version=1", 400),
        ("GET", "/%ff", 400),
        ("GET", "/q?" + "&".join(f"a{n}=1" for n in range(50)), 400),
    ],
)
def test_address_that_means_nothing_is_refused(raw, method, path, status):
    refusal(raw(method, path), status)


def test_first_page_names_the_next(raw, ns):
    ns.do(lambda namespace: [namespace.admin.create(queue(f"page{n}")) for n in range(3)])
    feed = ElementTree.fromstring(raw("GET", "/$Resources/queues?$skip=0&$top=2")[2])
    links = feed.findall(f"{ATOM}link")
    assert len(feed.findall(f"{ATOM}entry")) == 2
    assert [link.get("rel") for link in links] == ["self", "next"]
    assert "%24skip=2&%24top=2" in links[1].get("href")


def queue(name):
    from pairbus.broker.entities.model import QueueDescription

    return QueueDescription(name)


# --- bodies --------------------------------------------------------------------------------------

BOMB = (
    b'<!DOCTYPE a [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>'
    b'<entry xmlns="http://www.w3.org/2005/Atom"><content><QueueDescription><UserMetadata>&b;'
    b"</UserMetadata></QueueDescription></content></entry>"
)
NINES = "9" * 5000
OUTSIDE = (
    b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><entry><content><QueueDescription/></content></entry>'
)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not xml",
        b"<entry>",
        b"<entry/>",
        b"<feed/>",
        b"\xff\xfe\x00",
        body("<SomethingElse/>"),
        body("<RuleDescription/>"),
        b'<?xml version="1.0" encoding="nonsense"?><entry/>',
        b"<?evil do?>" + body(),
        body("<a>" * 1000 + "</a>" * 1000),
        body("<QueueDescription>" + "<a/>" * 6000 + "</QueueDescription>"),
        BOMB,
        OUTSIDE,
        b"x" * 600_000,
        body("<QueueDescription><MaxDeliveryCount>many</MaxDeliveryCount></QueueDescription>"),
        body(f"<QueueDescription><MaxDeliveryCount>{NINES}</MaxDeliveryCount></QueueDescription>"),
        body("<QueueDescription><LockDuration>soon</LockDuration></QueueDescription>"),
        body("<QueueDescription><RequiresSession>maybe</RequiresSession></QueueDescription>"),
        body("<QueueDescription><ForwardTo>sb://[x/y</ForwardTo></QueueDescription>"),
        body("<QueueDescription><Status>Gone</Status></QueueDescription>"),
        body(
            "<QueueDescription><AuthorizationRules><AuthorizationRule><Rights><AccessRights>All"
            "</AccessRights></Rights></AuthorizationRule></AuthorizationRules></QueueDescription>"
        ),
    ],
    ids=range(22),
)
def test_bad_body_is_refused(raw, content):
    detail = refusal(raw("PUT", "/bad-body", content), 400)
    assert "passwd" not in detail


@pytest.mark.parametrize(
    "content",
    [
        body('<RuleDescription><Filter type="Strange"/></RuleDescription>'),
        body('<RuleDescription><Action type="Strange"/></RuleDescription>'),
        body(
            '<RuleDescription><Filter type="SqlFilter"><SqlExpression>a=1</SqlExpression>'
            "<Parameters><x><Key>k</Key></x></Parameters></Filter></RuleDescription>"
        ),
        body(
            '<RuleDescription><Filter type="SqlFilter"><SqlExpression>a=1</SqlExpression>'
            '<Parameters><x><Key>k</Key><Value type="p:QName">v</Value></x></Parameters></Filter>'
            "</RuleDescription>"
        ),
    ],
)
def test_bad_rule_body_is_refused(raw, name, content):
    raw("PUT", f"/{name}", body("<TopicDescription/>"))
    raw("PUT", f"/{name}/subscriptions/s", body("<SubscriptionDescription/>"))
    refusal(raw("PUT", f"/{name}/subscriptions/s/rules/r", content), 400)


def test_body_larger_than_the_front_door_takes_is_not_read(raw):
    try:
        status = raw("PUT", "/huge", b"x" * 3_000_000)[0]
    except ConnectionError:
        return
    assert status == 413


def test_subscription_can_be_created_with_its_first_rule(raw, name):
    raw("PUT", f"/{name}", body("<TopicDescription/>"))
    described = body(
        '<SubscriptionDescription xmlns:i="http://www.w3.org/2001/XMLSchema-instance">'
        '<ForwardTo i:nil="true"/><DefaultRuleDescription><Filter i:type="SqlFilter">'
        "<SqlExpression>a = 1</SqlExpression></Filter><Name>mine</Name></DefaultRuleDescription>"
        "</SubscriptionDescription>"
    )
    assert raw("PUT", f"/{name}/subscriptions/s", described)[0] == 201
    feed = ElementTree.fromstring(raw("GET", f"/{name}/subscriptions/s/rules")[2])
    assert [entry.findtext(f"{ATOM}title") for entry in feed.findall(f"{ATOM}entry")] == ["mine"]


def test_addresses_in_answers_are_written_as_the_service_writes_them(raw, name):
    raw("PUT", f"/{name}", body("<TopicDescription/>"))
    raw("PUT", f"/{name}/subscriptions/s", body("<SubscriptionDescription/>"))
    for asked in (f"/{name}/subscriptions/s/rules/$Default", f"/{name}/Subscriptions/s/rules"):
        answer = ElementTree.fromstring(raw("GET", asked)[2])
        entry = answer if answer.tag == f"{ATOM}entry" else answer.find(f"{ATOM}entry")
        address = entry.findtext(f"{ATOM}id")
        assert address.split("?")[0].endswith(f"/{name}/Subscriptions/s/Rules/$Default")


def test_topic_property_that_the_sdk_never_sends_is_kept(raw, name):
    flag = "FilteringMessagesBeforePublishing"
    content = body(f"<TopicDescription><{flag}>true</{flag}></TopicDescription>")
    raw("PUT", f"/{name}", content)
    found = ElementTree.fromstring(raw("GET", f"/{name}")[2])
    assert found.find(f".//{SB}{flag}").text == "true"


def test_bearer_header_may_carry_a_shared_access_signature(raw):
    assert raw("GET", "/$namespaceinfo", token="Bearer " + raw.token())[0] == 200
    refusal(raw("GET", "/$namespaceinfo", token="Bearer eyJhbGciOi.x.y"), 401)
