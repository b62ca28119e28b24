"""Avro, JSON Schema and Protobuf behind the ids of a schema registry, in `produce` and `consume`."""

from __future__ import annotations

import base64
import io
import json
import socket
import struct
import threading
from collections.abc import Iterator
from email.message import Message
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cli.admin_commands import CommandLine
from tests.support.schema_registry import schema_registry

from stratalog import Broker
from stratalog.cli.schema_registry import SchemaError, SchemaRegistry
from stratalog.errors import UsageError

fastavro = pytest.importorskip("fastavro")
descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "total", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "by", "type": "Customer"},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
    ],
}
CUSTOMER = {"type": "record", "name": "Customer", "fields": [{"name": "name", "type": "string"}]}
BOTH = fastavro.parse_schema(ORDER, named_schemas={"Customer": fastavro.parse_schema(CUSTOMER)})


def proto_file() -> Any:
    """Money { int64 cents }, Sale { Money price, Timestamp at_time }, and within Sale: Line { string sku }."""
    file = descriptor_pb2.FileDescriptorProto(name="default", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    money = file.message_type.add(name="Money")
    money.field.add(name="cents", number=1, type=3, label=1)
    sale = file.message_type.add(name="Sale")
    sale.field.add(name="price", number=1, type=11, label=1, type_name=".shop.Money")
    sale.field.add(name="at_time", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    line = sale.nested_type.add(name="Line")
    line.field.add(name="sku", number=1, type=9, label=1)
    return file


SCHEMAS: dict[int, dict[str, Any]] = {
    1: {
        "schema": json.dumps(ORDER),
        "references": [{"name": "Customer", "subject": "customer-value", "version": 3}],
    },
    2: {"schemaType": "JSON", "schema": '{"type": "object"}'},
    3: {
        "schemaType": "PROTOBUF",
        "schema": "syntax = ..",
        "serialized": base64.b64encode(proto_file().SerializeToString()).decode(),
    },
    4: {"schema": '"string"'},
    5: {"schemaType": "XML", "schema": "<x/>"},
}
SUBJECTS = {"customer-value/3": {"schema": json.dumps(CUSTOMER)}}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with schema_registry(SCHEMAS, SUBJECTS) as url:
        yield url


def avro(value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, BOTH, value)
    return b"\0\0\0\0\1" + out.getvalue()


def test_avro_with_references_is_read_and_written(url: str) -> None:
    registry = SchemaRegistry(url)
    value = {"total": 1.5, "note": "ü", "by": {"name": "a"}, "raw": b"\xff"}
    assert registry.decoded(avro(value)) == value
    assert registry.encoded(value, 1) == avro(value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # message 0, in its short form and as a list of one; message 1; the message within message 1
        (b"\x00\x08\x96\x01", {"cents": "150"}),
        (b"\x02\x00\x08\x96\x01", {"cents": "150"}),
        (b"\x02\x02\x0a\x02\x08\x05\x12\x02\x08\x01", {"price": {"cents": "5"}, "at_time": "1970-01-01T00:00:01Z"}),
        (b"\x04\x02\x00\x0a\x01x", {"sku": "x"}),
    ],
)
def test_protobuf_names_its_message_by_indexes(url: str, data: bytes, expected: dict[str, Any]) -> None:
    assert SchemaRegistry(url).decoded(b"\0" + struct.pack(">I", 3) + data) == expected


def test_protobuf_is_written_as_the_first_message(url: str) -> None:
    assert SchemaRegistry(url).encoded({"cents": 150}, 3) == b"\0\0\0\0\3\0\x08\x96\x01"


@pytest.mark.parametrize("data", [None, b"", b"\0", b"plain text", b"\0\0\0\0"])
def test_bytes_without_an_id_stay_as_they_are(url: str, data: bytes | None) -> None:
    assert SchemaRegistry(url).decoded(data) == data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\0\0\0\0\x09x", "answers 404 to schemas/ids/9"),
        (b"\0\0\0\0\1", "bytes that are not of schema 1"),
        (b"\0\0\0\0\2{", "bytes that are not of schema 2"),
        (b"\0\0\0\0\3\x04", "bytes that are not of schema 3"),
        (b"\0\0\0\0\3\xff\xff\xff\xff\xff\xff", "bytes that are not of schema 3"),
        (b"\0\0\0\0\3\x02\x20", "bytes that are not of schema 3"),
        (b"\0\0\0\0\5x", "schema 5 is of the unknown type XML"),
    ],
)
def test_bytes_that_no_schema_explains_are_an_error(url: str, data: bytes, said: str) -> None:
    with pytest.raises(SchemaError) as raised:
        SchemaRegistry(url).decoded(data)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"schema": "no schema"}, "schema 1 cannot be used: JSONDecodeError"),
        ({"schema": '{"type": "nothing"}'}, "schema 1 cannot be used: UnknownType"),
        ({"schema": '"string"', "references": [{"name": "x"}]}, "schema 1 cannot be used: KeyError"),
        (
            {"schema": '"string"', "references": [{"name": "x", "subject": "loop", "version": 1}]},
            "subjects/loop/versions/1 at http://",
        ),
        ({"schemaType": "PROTOBUF", "schema": "", "serialized": base64.b64encode(b"\xff").decode()}, "schema 1 cannot"),
    ],
)
def test_a_schema_that_is_none_is_an_error(schema: dict[str, Any], said: str) -> None:
    loop = {"schema": '"string"', "references": [{"name": "x", "subject": "loop", "version": 1}]}
    with schema_registry({1: schema}, {"loop/1": loop}) as url, pytest.raises(SchemaError) as raised:
        SchemaRegistry(url).decoded(b"\0\0\0\0\1x")
    assert said in str(raised.value)


def test_a_schema_that_two_others_refer_to_is_taken_once() -> None:
    def reference(name: str) -> dict[str, Any]:
        return {"name": name, "subject": name, "version": 1}

    def record(name: str, *fields: str) -> str:
        return json.dumps({"type": "record", "name": name, "fields": [{"name": each, "type": each} for each in fields]})

    subjects: dict[str, dict[str, Any]] = {
        "A/1": {"schema": record("A")},
        "B/1": {"schema": record("B", "A"), "references": [reference("A")]},
    }
    top = {"schema": record("C", "A", "B"), "references": [reference("A"), reference("B")]}
    with schema_registry({1: top}, subjects) as url:
        assert SchemaRegistry(url).decoded(b"\0\0\0\0\1") == {"A": {}, "B": {"A": {}}}


@pytest.mark.parametrize("answer", [b"no HTTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b""])
def test_an_answer_that_is_no_http_is_an_error(answer: bytes) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(UsageError, match="cannot reach a schema registry"):
            SchemaRegistry(f"http://127.0.0.1:{server.getsockname()[1]}").decoded(b"\0\0\0\0\1x")
        thread.join()


@pytest.mark.parametrize("url", ["http://h:port", "http://[", "ftp://h", "", "http://h:99999"])
def test_a_url_that_is_none_is_wrong_usage(url: str) -> None:
    with pytest.raises(UsageError, match="expected http://HOST:PORT"):
        SchemaRegistry(url)


def test_a_registry_may_want_a_login_and_errors_never_show_it() -> None:
    with schema_registry(SCHEMAS, SUBJECTS, login="me:swordfish") as url:
        assert SchemaRegistry(url).decoded(b"\0\0\0\0\4\x02a") == "a"
        with pytest.raises(SchemaError) as raised:
            SchemaRegistry(url.replace("swordfish", "hunter2")).decoded(b"\0\0\0\0\4\x02a")
    assert "answers 401" in str(raised.value)
    assert "hunter2" not in str(raised.value)
    with pytest.raises(UsageError, match="cannot reach a schema registry") as gone:
        SchemaRegistry(url).decoded(b"\0\0\0\0\4\x02a")
    assert "swordfish" not in str(gone.value)


def test_a_registry_that_sends_us_elsewhere_does_not_send_the_login_there() -> None:
    asked: list[Message] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers)
            if self.path.startswith("/schemas"):
                self.send_response(302)
                self.send_header("Location", f"http://127.0.0.1:{server.server_port}/other")
                self.end_headers()
            else:
                self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(SchemaError, match="answers 404"):
                SchemaRegistry(f"http://me:swordfish@127.0.0.1:{server.server_port}").decoded(b"\0\0\0\0\4\x02a")
        finally:
            server.shutdown()
            thread.join()
    assert ["Authorization" in headers for headers in asked] == [True, False]


def test_records_are_written_and_read_by_schemas(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        cli = CommandLine(broker.bootstrap_servers, capsys)
        at = ("--schema-registry", url)
        given = {"total": 150.0, "note": None, "by": {"name": "ann"}}
        order = {**given, "raw": None}
        cli.good("topics", "create", "orders")
        cli.good("produce", "orders", json.dumps(given), "-k", "key", "--key-schema", "4", "--value-schema", "1", *at)
        cli.good("produce", "orders", '{"cents": 7}', "--value-schema", "3", *at)
        cli.good("produce", "orders", "plain")
        reported = [json.loads(line) for line in cli.good("consume", "orders", "-e", "--json", *at).out.splitlines()]
        assert [each["value"] for each in reported] == [order, {"cents": "7"}, "plain"]
        assert reported[0]["key"] == "key"
        condition = ("--filter", "value.total > 100 and value.by.name ~ '^a' and key == 'key'")
        assert cli.good("consume", "orders", "-e", "-f", "%k %v\\n", *condition, *at).out == (
            'key {"total":150.0,"note":null,"by":{"name":"ann"},"raw":null}\n'
        )
        said = cli.refused("produce", "orders", '{"total": "x"}', "--value-schema", "1", *at)
        assert said.startswith("record 1: a value that is not of schema 1")
        cli.good("produce", "orders", "x", "--input", "raw", "--value-schema", "4", *at)
        without = cli.good("consume", "orders", "-o", "3", "-e", "-f", "%v{hex}").out
        assert without == "00000000040278"
        said = cli.refused("produce", "orders", "x", "--value-schema", "4", code=2)
        assert "need --schema-registry URL" in said
