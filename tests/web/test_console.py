"""The console without a browser: who gets in, what a change needs, and what bad input is answered with."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import urllib.parse
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from starlette.requests import Request
from starlette.routing import Route
from tests.support.schema_registry import schema_registry

from stratalog.broker.access import Acl, AclOperation, PatternType, Permission, ResourceType
from stratalog.broker.security import credential_of_password
from stratalog.broker.server.listen_address import ListenAddress
from stratalog.broker.server.server import Broker
from stratalog.cli.serve import schemas_of
from stratalog.config import BrokerConfig
from stratalog.errors import StratalogError, UnknownTopicOrPartitionError, UsageError
from stratalog.records import Codec, Record, build_batch
from stratalog.util import SYSTEM_CLOCK
from stratalog.web.app import make_app
from stratalog.web.declarations import Console
from stratalog.web.events import EventKeeper
from stratalog.web.fields import moment_ms
from stratalog.web.gate import Gate, NoLoginError, is_this_machine
from stratalog.web.pages import ACTIONS, PAGES
from stratalog.web.pages.record_text import shown, visible
from stratalog.web.pages.segments import BLOCKS_MAX, MapSegment, _blocks
from stratalog.web.sampler import RateSampler
from stratalog.web.server import WebServer

RAW = "/topics/{topic}/partitions/{partition}/raw"
FORM = "application/x-www-form-urlencoded"


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Client:
    """A browser without a screen: keeps the cookie it was given."""

    def __init__(self, url: str) -> None:
        self.host = url.removeprefix("http://").rstrip("/")
        self.cookie = ""

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection(self.host, timeout=30)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.cookie:
            sent["Cookie"] = self.cookie
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        found = {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
        if "set-cookie" in found:
            self.cookie = found["set-cookie"].partition(";")[0]
        return Answer(answer.status, found, text)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def post(self, path: str, headers: dict[str, str] | None = None, **fields: str) -> Answer:
        return self.ask("POST", path, urllib.parse.urlencode(fields), **{"Content_Type": FORM, **(headers or {})})

    def form_token(self, path: str) -> str:
        found = re.search(r'name="form_token" value="([0-9a-f]+)"', self.get(path).text)
        assert found is not None
        return found[1]


def _serve(directory: Path, **config: str) -> tuple[Broker, WebServer]:
    """Serve with settings whose names are written with underscores, but for those that have their dots."""
    settings = {key if "." in key else key.replace("_", "."): value for key, value in config.items()}
    web = WebServer(ListenAddress("127.0.0.1", 0))
    broker = Broker(data_dir=directory, config={"offsets.topic.num.partitions": 1, **settings})
    web.start(broker.services)
    return broker, web


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Without users and rules; changes are allowed."""
    broker, web = _serve(tmp_path_factory.mktemp("plain"), stratalog_web_allow_changes="true")
    broker.create_topic("orders", 2)
    broker.create_topic("payments")
    yield Client(web.url)
    web.close()
    broker.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    """With an authorizer: alice may read `orders`, admin may do everything. PLAIN has bob."""
    broker, web = _serve(
        tmp_path_factory.mktemp("secured"),
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        listener_security_protocol_map="SASL_PLAINTEXT:SASL_PLAINTEXT",
        inter_broker_listener_name="SASL_PLAINTEXT",
        sasl_enabled_mechanisms="SCRAM-SHA-256,PLAIN",
        **{
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_bob="builder";'
            ),
        },
        authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        super_users="User:admin",
        stratalog_web_allow_changes="true",
    )
    services = broker.services
    for user in ("alice", "admin"):
        credential = credential_of_password("SCRAM-SHA-256", f"{user}-secret", 4096)
        services.scram.change({("SCRAM-SHA-256", user): credential})
    for name in ("orders", "secrets"):
        broker.create_topic(name)
    rule = Acl(
        resource_type=ResourceType.TOPIC,
        name="orders",
        pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=AclOperation.READ,
        permission=Permission.ALLOW,
    )
    assert services.access is not None
    services.access.authorizer.add([rule])
    yield broker, web.url
    web.close()
    broker.close()


@pytest.mark.parametrize("claimed", ["http", "https"])
def test_what_a_header_says_of_a_client_counts_from_named_proxies_only(
    secured: tuple[Broker, str], claimed: str
) -> None:
    sent = {"X_Forwarded_Proto": claimed, "X_Forwarded_For": "10.1.2.3"}
    answer = Client(secured[1]).post("/login", sent, user="alice", password="alice-secret")
    assert answer.status == 303
    assert "secure" not in answer.headers["set-cookie"].lower()


def logged_in(url: str, user: str, password: str) -> Client:
    client = Client(url)
    answer = client.post("/login?next=%2Ftopics", user=user, password=password)
    assert answer.status == 303, answer.text
    assert answer.headers["location"] == "/topics"
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "SameSite=strict" in answer.headers["set-cookie"]
    return client


# --- who gets in ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/", "/topics", "/topics/orders/messages", "/security", "/events", "/tier", "/cluster"]
)
def test_without_a_login_nothing_is_shown_where_one_is_needed(secured: tuple[Broker, str], path: str) -> None:
    client = Client(secured[1])
    page = client.get(path)
    assert page.status == 303
    assert page.headers["location"].startswith("/login?next=")
    reported = client.get("/api/overview" if path == "/" else f"/api{path}")
    assert (reported.status, reported.json) == (401, {"error": "a login is needed"})


def test_access_rules_decide_what_a_user_sees(secured: tuple[Broker, str]) -> None:
    alice = logged_in(secured[1], "alice", "alice-secret")
    assert [topic["name"] for topic in alice.get("/api/topics").json["topics"]] == ["orders"]
    assert alice.get("/topics/orders/messages").status == 200
    assert alice.get("/topics/secrets").status == 404
    assert alice.get("/topics/secrets").text.count("secrets") == 0
    assert alice.get("/api/topics/nothing").json == alice.get("/api/topics/secrets").json
    assert alice.get("/events").status == 403
    assert alice.get("/api/overview").json["disks"] == []
    assert alice.get("/api/tier-status?topic=secrets").json["partitions"] == []
    admin = logged_in(secured[1], "admin", "admin-secret")
    assert [topic["name"] for topic in admin.get("/api/topics").json["topics"]] == ["orders", "secrets"]
    assert admin.get("/events").status == 200


def test_users_of_plain_get_in_too_and_programs_by_basic(secured: tuple[Broker, str]) -> None:
    assert logged_in(secured[1], "bob", "builder").get("/api/topics").json["topics"] == []
    basic = b64encode(b"alice:alice-secret").decode()
    reported = Client(secured[1]).get("/api/topics", Authorization=f"Basic {basic}")
    assert [topic["name"] for topic in reported.json["topics"]] == ["orders"]


def test_a_login_by_plain_does_not_read_the_keys_of_another_mechanism(tmp_path: Path) -> None:
    """They may be at a server that is slow or away: each login, also a wrong one, would ask it."""
    keys = tmp_path / "keys.json"
    public = rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key()
    keys.write_text(json.dumps({"keys": [{**json.loads(RSAAlgorithm.to_jwk(public)), "kid": "first"}]}))
    broker, web = _serve(
        tmp_path / "data",
        listeners="SASL_PLAINTEXT://127.0.0.1:0",
        inter_broker_listener_name="SASL_PLAINTEXT",
        sasl_enabled_mechanisms="OAUTHBEARER,PLAIN",
        stratalog_web_login="required",
        **{
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "us",
            "sasl.oauthbearer.expected.issuer": "them",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": 'x.PlainLoginModule required user_bob="builder";',
        },
    )
    with closing(broker), closing(web):
        keys.unlink()
        assert logged_in(web.url, "bob", "builder").get("/api/topics").status == 200


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", "x"), ("", ""), ("alice", ""), ("alice\0", "alice-secret")]
)
def test_a_wrong_password_is_said_so_and_never_shown(
    secured: tuple[Broker, str], user: str, password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stratalog.web.desk.FAILED_LOGIN_S", 0)
    answer = Client(secured[1]).post("/login", user=user, password=password)
    assert answer.status == 401
    assert "The name or the password is wrong." in answer.text
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "following", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/\n"]
)
def test_a_login_leads_to_no_other_site(secured: tuple[Broker, str], following: str) -> None:
    query = urllib.parse.urlencode({"next": following})
    answer = Client(secured[1]).post(f"/login?{query}", user="alice", password="alice-secret")
    assert answer.headers["location"] == "/"


def test_a_logout_ends_the_session(secured: tuple[Broker, str]) -> None:
    alice = logged_in(secured[1], "alice", "alice-secret")
    kept = alice.cookie
    alice.post("/logout", form_token=alice.form_token("/topics"))
    alice.cookie = kept
    assert alice.get("/api/topics").status == 401


def test_a_session_ends_with_its_user_and_with_a_new_password(secured: tuple[Broker, str]) -> None:
    scram = secured[0].services.scram
    key = ("SCRAM-SHA-256", "leaver")
    for change in ({key: credential_of_password("SCRAM-SHA-256", "another", 4096)}, {}):
        scram.change({key: credential_of_password("SCRAM-SHA-256", "leaver-secret", 4096)})
        leaver = logged_in(secured[1], "leaver", "leaver-secret")
        assert leaver.get("/api/topics").status == 200
        scram.change(change, () if change else (key,))
        assert leaver.get("/api/topics").status == 401
        assert leaver.get("/topics").status == 303


def test_guesses_by_basic_take_as_long_as_those_in_the_form(secured: tuple[Broker, str]) -> None:
    gate = Gate(secured[0].services, "127.0.0.1")
    waits: list[float] = []
    right_ones: list[str] = []

    def ask(password: str) -> str | None:
        basic = b64encode(f"alice:{password}".encode())
        scope = {"type": "http", "headers": [(b"authorization", b"Basic " + basic)], "client": ("127.0.0.1", 1)}
        try:
            return gate.viewer(Request(scope)).principal.name
        except NoLoginError:
            return None

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) < 20:
            ask(f"guess {len(waits)}")
        right_ones.append(str(ask("alice-secret")))

    gate.wait = wait
    assert ask("wrong") is None
    assert waits == [1.0] * 8  # as many wait at once, and no other is looked at
    assert right_ones[0] == "None"
    assert ask("alice-secret") == "alice"


def test_changes_need_what_the_rules_ask_for(secured: tuple[Broker, str]) -> None:
    alice = logged_in(secured[1], "alice", "alice-secret")
    token = alice.form_token("/topics/orders/produce")
    refused = alice.post("/topics/orders/produce", form_token=token, value="x")
    assert refused.status == 400
    assert "uthoriz" in refused.text
    assert secured[0].services.logs.partitions("orders")[0].log.log_end_offset == 0


# --- what a change needs ----------------------------------------------------------------------------------------------


def _produce(client: Client, headers: dict[str, str] | None = None, **fields: str) -> Answer:
    return client.post("/topics/orders/produce", headers, value="x", **fields)


def test_a_form_needs_the_token_of_its_session(plain: Client) -> None:
    token = plain.form_token("/topics/orders/produce")
    assert _produce(plain, form_token=token).status == 303
    assert _produce(plain).status == 403
    assert _produce(plain, form_token="0" * 64).status == 403
    other = Client(f"http://{plain.host}")
    other.form_token("/topics/orders/produce")
    assert _produce(other, form_token=token).status == 403


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec_Fetch_Site": "cross-site"}],
    ids=["another site", "a sandbox", "as the browser says"],
)
def test_a_change_from_another_site_is_refused(plain: Client, headers: dict[str, str]) -> None:
    token = plain.form_token("/topics/orders/produce")
    assert _produce(plain, headers, form_token=token).status == 403
    reported = plain.ask("POST", "/api/topics/orders/produce", "{}", Content_Type="application/json", **headers)
    assert reported.status == 403


def test_json_of_a_form_of_another_site_is_refused(plain: Client) -> None:
    assert plain.ask("POST", "/api/topics/orders/produce", '{"value": "x"}', Content_Type="text/plain").status == 400
    done = plain.ask("POST", "/api/topics/orders/produce", '{"value": "x"}', Content_Type="application/json")
    assert "appended to orders-0" in done.json["done"]


def test_a_console_is_read_only_by_default_otherwise(secured: tuple[Broker, str], tmp_path: Path) -> None:
    broker, web = _serve(tmp_path)
    try:
        broker.create_topic("orders")
        client = Client(web.url)
        answer = client.ask("POST", "/api/topics/orders/produce", "{}", Content_Type="application/json")
        assert answer.status == 403
        assert "stratalog.web.allow.changes" in answer.json["error"]
        assert "form_token" not in client.get("/topics/orders/settings").text
    finally:
        web.close()
        broker.close()


def test_changes_for_everybody_on_the_network_refuse_the_start(tmp_path: Path) -> None:
    config = {"stratalog.web.allow.changes": "true", "stratalog.web.login": "off"}
    with Broker(data_dir=tmp_path, config=config) as broker:
        services = broker.services
        console = Console(services, RateSampler(services), EventKeeper(services.clock), "h:1")
        make_app(services, console, "127.0.0.1")
        with pytest.raises(UsageError, match=r"stratalog\.web\.allow\.changes=true"):
            make_app(services, console, "0.0.0.0")


def test_metrics_need_the_token_where_a_login_is_needed(tmp_path: Path) -> None:
    broker, web = _serve(tmp_path, stratalog_web_login="required", stratalog_web_metrics_token="t0ken")
    try:
        client = Client(web.url)
        assert client.get("/metrics").status == 401
        assert client.get("/metrics", Authorization="Bearer wrong").status == 401
        assert client.get("/metrics", Authorization="Bearer t0ken").status == 200
        assert client.get("/api/tier-status", Authorization="Bearer t0ken").status == 401
        assert client.get("/health").status == 200
    finally:
        web.close()
        broker.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_addresses_of_this_machine_alone(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "example.org", "localhost.example"])
def test_addresses_that_others_reach(host: str) -> None:
    assert not is_this_machine(host)


def test_every_answer_carries_the_headers_of_safety(plain: Client) -> None:
    for path in ("/", "/topics/none", "/api/topics", "/metrics", "/static/console.js", "/nothing", "/health/live"):
        headers = plain.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


def test_health_is_answered_while_every_thread_is_taken_by_pages(
    plain: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, go_on = threading.Semaphore(0), threading.Event()

    def slow(*_: object) -> NoReturn:
        taken.release()
        go_on.wait(60)
        raise UnknownTopicOrPartitionError("that was all")

    monkeypatch.setattr("stratalog.web.viewer.ConsoleViewer.topics", slow)
    threads = [
        threading.Thread(target=Client(f"http://{plain.host}").get, args=("/api/topics",)) for _ in range(_THREADS)
    ]
    try:
        for each in threads:
            each.start()
        for _ in threads:
            assert taken.acquire(timeout=60)
        for path in ("/health", "/health/live", "/health/ready"):
            assert plain.get(path).status == 200
    finally:
        go_on.set()
        for each in threads:
            each.join()


# --- bad input --------------------------------------------------------------------------------------------------------

#: As many requests as starlette gives threads to.
_THREADS = 40
_BAD = ("-1", "x", "1e9", "9" * 400, "\x00", "<script>", "٣", " ", "0x10", "1;2")


def _fields(plain: Client) -> list[tuple[str, str]]:
    document = plain.get("/api/openapi.json").json
    return [
        (path.replace("{topic}", "orders").replace("{partition}", "0"), parameter["name"])
        for path, methods in document["paths"].items()
        if "get" in methods
        for parameter in methods["get"]["parameters"]
        if parameter["in"] == "query"
    ]


def test_every_field_answers_bad_input_beside_itself(plain: Client) -> None:
    listed = _fields(plain)
    assert len(listed) > 30
    for path, name in listed:
        for text in _BAD:
            query = urllib.parse.urlencode({name: text, "id": "g"} if path == "/api/group" else {name: text})
            reported = plain.get(f"{path}?{query}")
            assert reported.status in (200, 400, 404), (path, name, text, reported.text)
            if reported.status == 400:
                assert list(reported.json["errors"]) == [name]


def test_an_error_stands_beside_its_field(plain: Client) -> None:
    page = plain.get("/topics/orders/retention?retention_ms=soon&partition=0")
    assert page.status == 400
    assert 'name="retention_ms" value="soon"' in page.text
    assert '<span class="wrong" id="wrong-retention_ms" role="alert">expected a whole number</span>' in page.text


@pytest.mark.parametrize(
    "path",
    [
        "/topics/none",
        "/topics/..%2f..%2fetc",
        "/topics/%00",
        "/topics/%ff",
        "/topics/orders/partitions/7",
        "/topics/orders/partitions/x",
        "/topics/orders/partitions/" + "9" * 5000,
        "/topics/orders/partitions/-1",
        "/topics/orders/partitions/0/records?offset=999",
        "/topics/orders/partitions/0/raw?offset=x",
        "/topics/orders/partitions/0/raw?offset=99",
        "/group?id=none",
        "/static/..%2fapp.py",
    ],
)
def test_what_is_not_there_is_404_without_a_traceback(plain: Client, path: str) -> None:
    for asked in (path, f"/api{path}"):
        answer = plain.get(asked)
        assert answer.status == 404, (asked, answer.text)
        assert "Traceback" not in answer.text


@pytest.mark.parametrize(
    "body",
    ["", "{", "[]", "null", "1", '{"value": ' + "[" * 100_000, '{"partition": {"a": 1}}', "\xff", "{" * 7_000_000],
)
def test_a_body_that_is_none_is_refused(plain: Client, body: str) -> None:
    answer = plain.ask("POST", "/api/topics/orders/produce", body, Content_Type="application/json")
    assert answer.status == 400, answer.text


def test_values_that_the_broker_refuses_are_said_beside_their_field(plain: Client) -> None:
    def post(path: str, **fields: str) -> Answer:
        return plain.ask("POST", f"/api{path}", json.dumps(fields), Content_Type="application/json")

    assert post("/topics/orders/produce", partition="9", value="x").json["errors"].keys() == {"value"}
    assert post("/topics/orders/produce", form="hex", value="zz").json["errors"].keys() == {"value"}
    assert post("/topics/orders/produce", headers="no sign").json["errors"].keys() == {"headers"}
    assert post("/topics/orders/settings", key="nothing").json["errors"].keys() == {"key"}
    reported = post("/topics/orders/settings", key="retention.ms", value="x", was="604800000")
    assert reported.json["errors"].keys() == {"value"}
    reported = post("/topics/orders/settings", key="retention.ms", value="1", was="2")
    assert reported.status == 409
    assert post("/security/users", user="u").json["errors"].keys() == {"password"}
    assert post("/security/acls", principal="nobody", name="x").json["errors"].keys() == {"principal"}
    assert post("/security/acls", principal="User:u", name="x").json["errors"].keys() == {"principal"}


def test_a_setting_is_set_and_put_back(plain: Client) -> None:
    def post(**fields: str) -> Answer:
        return plain.ask("POST", "/api/topics/orders/settings", json.dumps(fields), Content_Type="application/json")

    def value() -> tuple[str, str]:
        listed = plain.get("/api/topics/orders/settings?q=retention.ms").json["settings"]
        found = next(each for each in listed if each["name"] == "retention.ms")
        return found["value"], found["source"]

    assert post(key="retention.ms", value="1000", was="604800000").status == 200
    assert value() == ("1000", "this topic")
    assert post(key="retention.ms", act="reset", was="1000").status == 200
    assert value() == ("604800000", "default")


def test_users_and_rules_are_made_and_removed(secured: tuple[Broker, str]) -> None:
    admin = logged_in(secured[1], "admin", "admin-secret")

    def post(path: str, **fields: str) -> Answer:
        return admin.ask("POST", f"/api/security/{path}", json.dumps(fields), Content_Type="application/json")

    assert post("users", user="carol", password="c-secret").status == 200
    assert "carol" in {each["user"] for each in admin.get("/api/security").json["users"]}
    assert "c-secret" not in admin.get("/api/events").text
    logged_in(secured[1], "carol", "c-secret")
    assert post("users", user="carol", act="remove").status == 200
    rule = {"principal": "User:carol", "name": "secrets", "operation": "DESCRIBE"}
    assert post("acls", **rule).status == 200
    assert [each["principal"] for each in admin.get("/api/security?q=carol").json["acls"]] == ["User:carol"]
    assert post("acls", **rule, act="remove").status == 200
    assert admin.get("/api/security?q=carol").json["acls"] == []


def test_quotas_are_set_and_removed(plain: Client) -> None:
    def post(**fields: str) -> Answer:
        return plain.ask("POST", "/api/security/quotas", json.dumps(fields), Content_Type="application/json")

    assert post(quota_user="alice", quota_client="<default>", quota_value="1000").status == 200
    [quota] = plain.get("/api/security").json["quotas"]
    assert {each["type"]: each["name"] for each in quota["entity"]} == {"user": "alice", "client-id": None}
    assert quota["values"] == [{"key": "producer_byte_rate", "value": 1000.0}]
    assert post(quota_value="1").json["errors"].keys() == {"quota_user"}
    assert post(quota_user="alice", quota_value="-1").json["errors"].keys() == {"quota_value"}
    assert post(quota_user="alice", quota_client="<default>").status == 200
    assert plain.get("/api/security").json["quotas"] == []


# --- JSON and HTML are one --------------------------------------------------------------------------------------------


def test_openapi_describes_every_path_and_each_is_served(plain: Client) -> None:
    document = plain.get("/api/openapi.json").json
    assert document["openapi"].startswith("3.1")
    names = []
    for path, methods in document["paths"].items():
        names += [each["operationId"] for each in methods.values()]
        asked = path.replace("{topic}", "orders").replace("{partition}", "0")
        if "get" in methods:
            status = plain.get(asked).status
            assert status == (404 if path in ("/api/group", RAW) else 200), path
            assert str(status) in methods["get"]["responses"], path
        if "post" in methods:
            status = plain.ask("POST", asked, "{", Content_Type="application/json").status
            assert str(status) in methods["post"]["responses"], (path, status)
    assert len(set(names)) == len(names)


def test_openapi_leaves_out_only_what_is_for_people(plain: Client, tmp_path: Path) -> None:
    described = plain.get("/api/openapi.json").json["paths"]
    pages = {each.path for each in (*PAGES, *ACTIONS)}
    with Broker(data_dir=tmp_path) as broker:
        console = Console(broker.services, RateSampler(broker.services), EventKeeper(SYSTEM_CLOCK), "h:1")
        routes = [each for each in make_app(broker.services, console).routes if isinstance(each, Route)]
    served: dict[str, set[str]] = {}
    for route in routes:
        if not route.path.startswith("/static/") and route.path not in pages:
            served.setdefault(route.path, set()).update(each.lower() for each in (route.methods or {"GET"}))
    assert {path: set(methods) for path, methods in described.items()} == {
        path: methods - {"head"} for path, methods in served.items()
    }


def test_topics_are_paged_and_a_page_beyond_the_last_is_the_last(plain: Client) -> None:
    first = plain.get("/topics?size=1")
    assert ">orders</a>" in first.text
    assert 'rel="next" href="/topics?size=1&amp;page=2"' in first.text
    last = plain.get("/topics?size=1&page=99")
    assert ">payments</a>" in last.text
    assert 'rel="prev"' in last.text


# --- parts ------------------------------------------------------------------------------------------------------------


def test_a_hundred_thousand_segments_are_drawn_as_few_blocks() -> None:
    lane = [
        MapSegment(
            tier="remote",
            base_offset=at * 100,
            end_offset=at * 100 + 99,
            size_bytes=1000,
            from_ms=at * 60_000,
            to_ms=at * 60_000 + 60_000,
            state="failing" if at == 77_777 else "remote",
            reason="",
        )
        for at in range(100_000)
    ]
    blocks = _blocks(lane, [(each.from_ms, each.to_ms) for each in lane], 0, lane[-1].to_ms)
    assert len(blocks) <= BLOCKS_MAX + 1
    assert sum(block["segments"] for block in blocks) == 100_000
    assert sum(block["bytes"] for block in blocks) == 100_000_000
    assert [block["state"] for block in blocks].count("failing") == 1
    assert max(block["x"] + block["width"] for block in blocks) <= 1000.1


@pytest.mark.parametrize(
    ("data", "form", "text", "reported"),
    [
        (None, "auto", None, "null"),
        (b"", "auto", "", "text"),
        (b"plain", "auto", "plain", "text"),
        (b'{"a":1}', "auto", '{\n "a": 1\n}', "json"),
        (b"{no", "json", "{no", "not JSON"),
        (b"\xff\x00", "auto", "ff 00", "hex"),
        (b"\x00\x00\x00\x07", "int", "7", "int"),
        (b"\x00\x00\x07", "int", "00 00 07", "hex"),
        (b"[" * 4000, "auto", "[" * 4000, "not JSON"),
        ("\u202eabc\u200b".encode(), "text", "\\u202eabc\\u200b", "text"),
        (b"\xff", "text", "\\xff", "text"),
    ],
)
def test_bytes_are_shown_as_what_they_are(data: bytes | None, form: str, text: str | None, reported: str) -> None:
    found = shown(data, form)
    assert (found["text"], found["format"]) == (text, reported)


def test_text_that_is_cut_within_a_character_stays_text() -> None:
    found = shown("é".encode() * 5000, "auto")
    assert found["format"] == "text"
    assert found["cut"]


def test_no_character_changes_what_is_around_it() -> None:
    assert visible("a\x1b[31m\u2066\u2028\x7f\ud800b") == "a\\x1b[31m\\u2066\\u2028\\x7f\\ud800b"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0", 0), ("1700000000000", 1_700_000_000_000), ("-15m", 100_000), ("-1d", 0), ("1970-01-01T00:16", 960_000)],
)
def test_times_are_read(text: str, ms: int) -> None:
    assert moment_ms(text, 1_000_000) == ms


@pytest.mark.parametrize("text", ["soon", "12:00", "2026-13-01", "-", "-5y", "9999999999999999999"])
def test_what_is_no_time_is_said_so(text: str) -> None:
    with pytest.raises(ValueError, match="expected a time"):
        moment_ms(text, 0)


def test_a_value_is_shown_by_its_schema_and_why_not() -> None:
    def read(data: bytes) -> Any:
        if data[:1] != b"\0":
            return data
        if data == b"\0bad":
            raise StratalogError("schema 1 is\nnot known")
        return {"name": "\u202eé"}

    assert shown(b"\0good", "schema", schemas=read)["text"] == '{\n "name": "\\u202eé"\n}'
    assert shown(b"\0bad", "schema", schemas=read)["format"] == "schema 1 is\\nnot known"
    assert shown(b"plain", "schema", schemas=read)["format"] == "no schema"
    assert "stratalog.web.schema.registry" in shown(b"\0good", "schema")["format"]


def test_a_registry_that_is_named_reads_what_the_console_shows() -> None:
    schema = {"schemaType": "JSON", "schema": "{}"}
    with schema_registry({7: schema}, login="me:pass") as url:
        named = url if "@" in url else url.replace("//", "//me:pass@")
        config = BrokerConfig.from_properties({"stratalog.web.schema.registry": named})
        read = schemas_of(config)
        assert read is not None
        assert read(b'\0\0\0\0\x07{"a": 1}') == {"a": 1}
    assert schemas_of(BrokerConfig.from_properties({})) is None


def test_repeats_of_an_event_are_one_line() -> None:
    keeper = EventKeeper(SYSTEM_CLOCK)
    for at in range(50):
        keeper.note("warning", "log", "the same")
        keeper.note("warning", "log", f"other {at % 3}")
    assert {(each.text, each.times) for each in keeper.newest()} == {
        ("the same", 50),
        ("other 0", 17),
        ("other 1", 17),
        ("other 2", 16),
    }


def test_lag_in_time_is_reported_both_tiers(tmp_path: Path) -> None:
    """Of a group that read nothing: its next records are remote, local, and in a partition that is gone."""
    clock = SYSTEM_CLOCK
    broker, web = _serve(
        tmp_path,
        remote_log_storage_system_enable="true",
        remote_log_metadata_topic_num_partitions="1",
        remote_log_manager_task_interval_ms="20",
        log_retention_check_interval_ms="20",
        log_initial_task_delay_ms="20",
    )
    try:
        tiered = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "1"}
        broker.create_topic("tiered", config=tiered)
        broker.create_topic("local")
        old = clock.now_ms() - 3_600_000
        client = {"bootstrap.servers": broker.bootstrap_servers}
        producer = Producer({**client, "batch.size": 100_000})
        for topic, count in (("tiered", 3000), ("local", 1)):
            for _ in range(count):
                producer.produce(topic, bytes(1000), timestamp=old)
        assert producer.flush(30) == 0
        partition = broker.services.logs.partitions("tiered")[0]
        deadline = clock.monotonic() + 30
        while not partition.is_remote(0):
            assert clock.monotonic() < deadline
            clock.sleep(0.02)
        consumer = Consumer({**client, "group.id": "late"})
        consumer.commit(offsets=[TopicPartition("tiered", 0, 0), TopicPartition("local", 0, 0)], asynchronous=False)
        consumer.close()
        rows = Client(web.url).get("/api/group?id=late").json["rows"]
        assert [(row["topic"], row["lag"]) for row in rows] == [("local", 1), ("tiered", 3000)]
        assert all(3_600_000 <= row["lagMs"] < 3_700_000 for row in rows)
        assert "remote tier" in rows[1]["note"]
    finally:
        web.close()
        broker.close()


@pytest.mark.parametrize(
    "path", ["topics/orders/produce", "security/users", "security/quotas", "topics/orders/settings"]
)
def test_text_that_is_none_is_said_so(plain: Client, path: str, caplog: pytest.LogCaptureFixture) -> None:
    broken = r'{"value": "\ud800", "user": "\ud800", "password": "x", "quota_user": "\ud800", "key": "\ud800"}'
    assert plain.ask("POST", f"/api/{path}", broken, Content_Type="application/json").status == 400
    assert not caplog.records


def test_odd_requests_are_no_failures_of_the_console(plain: Client, caplog: pytest.LogCaptureFixture) -> None:
    plain.form_token("/topics/orders/produce")
    assert _produce(plain, form_token="\u00e9").status == 403
    assert plain.ask("POST", "/logout", "{}", Content_Type="application/json").status == 400
    assert plain.ask("POST", "/login", "a" * 70_000, Content_Type=FORM).status == 400
    assert plain.get("/api/topics/orders/messages?start=12345678901234567").status == 400
    for path in ("login", "logout", "topics/orders/produce"):
        host, port = plain.host.split(":")
        with socket.create_connection((host, int(port))) as sock:
            head = f"POST /{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\nContent-Length: 9\r\n\r\nuser"
            sock.sendall(head.encode())
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_records_that_swell_are_looked_at_within_bounds(
    plain: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, web = _serve(tmp_path)
    try:
        broker.create_topic("swelling")
        partition = broker.services.logs.partitions("swelling")[0]
        for _ in range(30):
            partition.append(build_batch([Record(0, 1, None, b"x" * 100_000)], codec=Codec.ZSTD))
        monkeypatch.setattr("stratalog.web.pages.records._DECOMPRESSED_MAX", 1_000_000)
        for query in ("count=200", "count=5&contains=x", "count=200&start=oldest"):
            reported = Client(web.url).get(f"/api/topics/swelling/messages?{query}").json
            assert len(reported["records"]) <= 10
            assert reported["problems"] == []
    finally:
        web.close()
        broker.close()


# --- topics and offsets of groups -------------------------------------------------------------------------------------


def test_a_topic_is_created_and_deleted(plain: Client) -> None:
    def post(path: str, **fields: str) -> Answer:
        return plain.ask("POST", f"/api{path}", json.dumps(fields), Content_Type="application/json")

    made = post("/topics", new_topic="made", partitions="3", configs="retention.ms=1000\ncleanup.policy=compact")
    assert (made.status, made.json) == (200, {"done": "topic made is created"})
    assert len(plain.get("/api/topics/made").json["rows"]) == 3
    assert post("/topics", new_topic="made").json["errors"].keys() == {"new_topic"}
    assert post("/topics", new_topic="a/b").json["errors"].keys() == {"new_topic"}
    assert post("/topics").json["errors"].keys() == {"new_topic"}
    assert post("/topics", new_topic="x", partitions="0").json["errors"].keys() == {"partitions"}
    assert post("/topics", new_topic="x", configs="retention.ms").json["errors"].keys() == {"configs"}
    assert post("/topics", new_topic="x", configs="retention.ms=soon").json["errors"].keys() == {"configs"}
    assert post("/topics/made/delete", confirm="mode").json["errors"].keys() == {"confirm"}
    assert post("/topics/none/delete", confirm="none").status == 404
    assert post("/topics/made/delete", confirm="made").status == 200
    assert plain.get("/api/topics/made").status == 404


def test_a_form_that_is_refused_is_shown_again_with_what_was_typed(plain: Client) -> None:
    token = plain.form_token("/topics")
    page = plain.post("/topics", new_topic="a/b", partitions="2", configs="x=y", form_token=token)
    assert page.status == 400
    assert 'value="a/b"' in page.text
    assert ">x=y</textarea>" in page.text
    assert 'id="wrong-new_topic"' in page.text


def test_a_group_without_members_goes_on_where_it_is_set(plain: Client) -> None:
    [node] = plain.get("/api/cluster").json["brokers"]
    client = {"bootstrap.servers": f"{node['host']}:{node['port']}"}
    producer = Producer(client)
    for at in range(5):
        producer.produce("payments", b"x", timestamp=1_700_000_000_000 + at)
    assert producer.flush(30) == 0
    consumer = Consumer({**client, "group.id": "a <b> & c"})
    consumer.commit(offsets=[TopicPartition("payments", 0, 1)], asynchronous=False)

    def post(**fields: str) -> Answer:
        given = {"id": "a <b> & c", "reset_topic": "payments", **fields}
        return plain.ask("POST", "/api/group/offsets", json.dumps(given), Content_Type="application/json")

    def committed() -> int:
        return int(consumer.committed([TopicPartition("payments", 0)], timeout=30)[0].offset)

    for fields, offset in (
        ({"reset_to": "latest"}, 5),
        ({}, 0),
        ({"reset_to": "offset", "reset_value": "3", "reset_partition": "0"}, 3),
        ({"reset_to": "offset", "reset_value": "99"}, 5),
        ({"reset_to": "time", "reset_value": "1700000000002"}, 2),
    ):
        assert post(**fields).status == 200, fields
        assert committed() == offset, fields
    assert post(reset_to="offset", reset_value="-1").json["errors"].keys() == {"reset_value"}
    assert post(reset_to="time", reset_value="soon").json["errors"].keys() == {"reset_value"}
    assert post(reset_topic="none").json["errors"].keys() == {"reset_topic"}
    assert post(reset_partition="7").json["errors"].keys() == {"reset_topic"}
    assert post(id="no such group").status == 404
    page = f"/group?{urllib.parse.urlencode({'id': 'a <b> & c'})}"
    shown = plain.post(
        "/group/offsets?" + page.partition("?")[2],
        id="a <b> & c",
        reset_topic="none",
        form_token=plain.form_token(page),
    )
    assert shown.status == 400
    assert 'id="wrong-reset_topic"' in shown.text
    consumer.close()


def test_topics_and_offsets_are_changed_by_those_who_may(secured: tuple[Broker, str]) -> None:
    broker, url = secured
    alice = {"Authorization": "Basic " + b64encode(b"alice:alice-secret").decode(), "Content_Type": "application/json"}
    client = Client(url)
    for path, fields in (
        ("/topics", {"new_topic": "hers"}),
        ("/topics/orders/delete", {"confirm": "orders"}),
    ):
        answer = client.ask("POST", f"/api{path}", json.dumps(fields), **alice)
        assert answer.status in (400, 403), answer.text
    assert broker.services.metadata.topic("hers") is None
    assert broker.services.metadata.topic("orders") is not None


def test_records_are_chosen_by_a_condition(plain: Client) -> None:
    [node] = plain.get("/api/cluster").json["brokers"]
    made = plain.ask("POST", "/api/topics", '{"new_topic": "chosen"}', Content_Type="application/json")
    assert made.status == 200
    producer = Producer({"bootstrap.servers": f"{node['host']}:{node['port']}"})
    for at in range(10):
        headers = [("trace", b"1")] if at % 2 else None
        producer.produce("chosen", json.dumps({"user": {"id": at}}), f"key-x{at}", headers=headers)
    producer.produce("chosen", b'"\\ud800"', b"\xff")
    assert producer.flush(30) == 0

    def ask(condition: str) -> Answer:
        return plain.get(f"/api/topics/chosen/messages?{urllib.parse.urlencode({'filter': condition})}")

    chosen = ask('key ~ "x" and value.user.id > 5 and headers.trace exists').json["records"]
    assert [each["offset"] for each in chosen] == [9, 7]
    assert [each["offset"] for each in ask("offset in [1, 3]").json["records"]] == [3, 1]
    assert [each["offset"] for each in ask('value.a ~ "b" or value ~ "d800"').json["records"]] == [10]
    assert ask('value ~ "(a+)+$"').status == 200  # would take for ever by backtracking
    for wrong in (
        "value ==",
        "key ~ '('",
        "timestamp > 'soon'",
        "__import__('os')",
        "(" * 999,
        "key ~ '(?=a)'",
        "x" * 2000,
    ):
        answer = ask(wrong)
        assert (answer.status, answer.json["errors"].keys()) == (400, {"filter"}), wrong
