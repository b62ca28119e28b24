"""The schemas of the OpenAPI document, compared with real answers, and each of them met at least once."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from tests.support.waiting import wait_until

from stratalog.broker.security import credential_of_password
from stratalog.broker.server.listen_address import ListenAddress
from stratalog.testing.broker import BrokerUnderTest
from stratalog.web.json_schema import SchemaBook
from stratalog.web.server import WebServer

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": "100",
    "stratalog.web.allow.changes": "true",
    "offsets.topic.num.partitions": "1",
}
_ADMIN = "Basic " + base64.b64encode(b"admin:admin-secret").decode()


class Api:
    """The JSON API of a broker, asked as admin."""

    def __init__(self, url: str) -> None:
        self._host = url.removeprefix("http://").rstrip("/")
        self.document = self.ask("GET", "/api/openapi.json")[1]

    def ask(self, method: str, path: str, body: dict[str, str] | None = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self._host, timeout=30)
        headers = {"Authorization": _ADMIN, "Content-Type": "application/json"}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found

    def schema(self, method: str, template: str, status: int) -> dict[str, Any]:
        reported = self.document["paths"][template][method.lower()]["responses"][str(status)]
        return dict(reported["content"]["application/json"]["schema"])

    def errors(self, schema: dict[str, Any], value: Any) -> list[str]:
        whole = {**schema, "components": self.document["components"]}
        return [f"{each.json_path}: {each.message}" for each in Draft202012Validator(whole).iter_errors(value)]

    def met(self, schema: dict[str, Any], value: Any) -> Iterator[str]:
        """Yield the classes of the schema that a value has objects of."""
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            yield name
            yield from self.met(self.document["components"]["schemas"][name], value)
        elif "anyOf" in schema:
            for part in schema["anyOf"]:
                if not self.errors(part, value):
                    yield from self.met(part, value)
        elif isinstance(value, list):
            for each in value:
                yield from self.met(schema.get("items", {}), each)
        elif isinstance(value, dict):
            for name, part in value.items():
                named = schema.get("properties", {})
                yield from self.met(named[name] if name in named else schema.get("additionalProperties", {}), part)


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    """A broker that has something of every kind: tiers that fail, groups with members, users, rules and quotas."""
    with BrokerUnderTest(SETTINGS) as broker, WebServer(ListenAddress("127.0.0.1", 0)) as web:
        broker.services.scram.change(
            {("SCRAM-SHA-256", "admin"): credential_of_password("SCRAM-SHA-256", "admin-secret", 4096)}
        )
        tiered = {"remote.storage.enable": "true", "segment.bytes": "1048576"}
        broker.create_topic("orders", 1, tiered)
        broker.create_topic("failing", 1, tiered)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        produce(producer, "orders")
        (orders,) = broker.services.logs.partitions("orders")
        wait_until(lambda: _copied(orders) == 2, "the copies")
        broker.faults.store_down()
        produce(producer, "failing")
        web.start(broker.services)
        group = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer(group)
        consumer.subscribe(["orders"])
        wait_until(lambda: consumer.poll(0.1), "a record of the group")
        consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
        try:
            yield Api(web.url)
        finally:
            consumer.close()


def produce(producer: Producer, topic: str) -> None:
    """Write two segments and more."""
    for number in range(3):
        producer.produce(topic, bytes(700_000), key=f"{number}", headers={"trace": b"1"})
        assert producer.flush(60) == 0


def _copied(partition: Any) -> int:
    return int(partition.remote.sizes(partition.topic_id_partition).readable_segments)


def asked(api: Api) -> Iterator[tuple[str, str, dict[str, str] | None]]:
    """Yield requests, by which every schema is met."""
    one = "/api/topics/{topic}/partitions/{partition}"
    for template, methods in api.document["paths"].items():
        if "get" in methods and "application/json" in methods["get"]["responses"]["200"].get("content", {}):
            yield "GET", template, None
    for query in ("retention?retention_ms=3600000", "messages?start=oldest", "settings?show=changed"):
        yield "GET", "/api/topics/{topic}/" + query, None
    yield "GET", f"{one}?axis=offset", None
    yield "GET", "/api/group?id=g", None
    yield "GET", "/api/tier?show=all", None
    yield "GET", "/api/topics?page=x", None
    yield "GET", "/api/topics?internal=yes&size=2", None
    yield "GET", "/api/topics/none", None
    yield "POST", "/api/security/quotas", {"quota_user": "alice", "quota_value": "5"}
    rule = {"principal": "User:alice", "name": "orders", "act": "add"}
    yield "POST", "/api/security/acls", rule
    yield "GET", "/api/security", None
    yield "GET", "/api/events", None
    yield "POST", "/api/security/quotas", {"quota_user": "", "quota_value": "5"}
    yield "POST", "/api/topics/{topic}/settings", {"key": "retention.ms", "value": "5", "was": "6"}


def test_every_answer_is_as_its_schema_says_and_every_schema_is_met(api: Api) -> None:
    def overview_is_whole() -> bool:
        reported = api.ask("GET", "/api/overview")[1]
        return bool(reported["rates"] and reported["requests"] and reported["attention"])

    wait_until(overview_is_whole, "rates, times of requests and what needs attention")
    wrong, met = [], set[str]()
    for method, request, body in asked(api):
        path, mark, query = request.partition("?")
        template = next(
            each for each in (path, "/api/topics/{topic}") if each in api.document["paths"] and method.lower() in
            api.document["paths"][each]
        )  # fmt: skip
        real = path.replace("{topic}", "orders").replace("{partition}", "0") + mark + query
        status, value = api.ask(method, real, body)
        schema = api.schema(method, template, status)
        wrong += [f"{method} {real} ({status}): {each}" for each in api.errors(schema, value)]
        met.update(api.met(schema, value))
    assert wrong == []
    assert api.document["components"]["schemas"].keys() - met == set()


def test_no_answer_is_any_object(api: Api) -> None:
    """Each has properties of its own, and no others."""
    for name, schema in api.document["components"]["schemas"].items():
        assert schema["properties"], name
        assert schema["additionalProperties"] is False
        assert schema["description"].endswith("."), name


def test_what_is_no_shape_of_json_is_refused() -> None:
    with pytest.raises(TypeError, match="has no schema"):
        SchemaBook().of(list[Path])
