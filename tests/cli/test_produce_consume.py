"""`stratalog produce` and `stratalog consume` on a broker of ours and on Apache Kafka: what goes in comes out."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from tests.cli.admin_commands import CommandLine
from tests.support.waiting import wait_until

from stratalog.broker.apis import k01_fetch
from stratalog.broker.server import Broker
from stratalog.cli.consume import command as consume_command
from stratalog.cli.main import run


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def records(any_cli: CommandLine, topic: str, *options: str) -> list[dict[str, Any]]:
    lines = any_cli.good("consume", topic, "-e", "--json", *options).out.splitlines()
    return sorted(map(json.loads, lines), key=lambda each: (each["partition"], each["offset"]))


# --- produce ----------------------------------------------------------------------------------------------------------


def test_lines_are_records_and_the_last_may_lack_its_end(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, "one\ntwo 🎉\n\nlast".encode())
    assert any_cli.good("produce", topic, "-p", "1").out == ""
    assert any_cli.good("consume", topic, "-e").out == "one\ntwo 🎉\n\nlast\n"
    assert {each["partition"] for each in records(any_cli, topic)} == {1}


def test_arguments_are_records_with_what_the_options_say(any_cli: CommandLine, topic: str) -> None:
    options = ("-k", "key", "-H", "a=1", "-H", "b=", "-p", "0", "--timestamp", "2026-01-31T12:00:00Z", "-z", "zstd")
    assert any_cli.good("produce", topic, "first\nline", "second", *options, "--json").json == {
        "topic": topic,
        "records": 2,
        "partitions": [{"partition": 0, "records": 2, "firstOffset": 0, "lastOffset": 1}],
    }
    first, second = records(any_cli, topic)
    assert (first["value"], second["value"]) == ("first\nline", "second")
    assert first["key"] == "key"
    assert first["timestamp"] == 1_769_860_800_000
    assert first["headers"] == [{"key": "a", "value": "1"}, {"key": "b", "value": ""}]


def test_keys_stand_before_their_separator_and_decide_the_partition_as_in_java(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"key-{number}" for number in range(20)]
    feed(monkeypatch, b"".join(f"{key}\x00\x00{key}!\xff".encode("latin-1") for key in keys))
    any_cli.good("produce", topic, "-K", "\\0\\x00", "-D", "\\xff")
    there = Producer({"bootstrap.servers": any_cli._bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        there.produce(topic, b"", key)
    there.flush()
    chosen: dict[str, set[int]] = {}
    for each in records(any_cli, topic):
        chosen.setdefault(each["key"], set()).add(each["partition"])
        assert each["value"] in ("", f"{each['key']}!")
    assert set(chosen) == set(keys)
    assert all(len(partitions) == 1 for partitions in chosen.values())


def test_a_format_names_the_fields_of_a_line(any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"2|k1|1700000000000|a=1,b=2|v|w\n0|k2|1700000000001||\n")
    any_cli.good("produce", topic, "-f", "%p|%k|%T|%h|%v", "-Z")
    second, first = records(any_cli, topic)
    assert (first["partition"], first["key"], first["value"]) == (2, "k1", "v|w")
    assert (first["timestamp"], len(first["headers"])) == (1_700_000_000_000, 2)
    assert (second["partition"], second["key"], second["value"]) == (0, "k2", None)


def test_what_consume_prints_as_json_is_what_produce_reads(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        {"key": "k", "value": "v", "partition": 2, "timestamp": 5, "headers": {"h": "1"}},
        {"key": None, "value": {"a": [1, "ü"]}, "partition": 0},
        {"keyBase64": "/w==", "valueBase64": "AP8=", "partition": 1, "headers": [{"key": "h", "valueBase64": "/w=="}]},
        {"key": "gone", "value": None, "partition": 1},
    ]
    feed(monkeypatch, "\n".join(map(json.dumps, lines)).encode())
    any_cli.good("produce", topic, "--input", "json")
    printed = any_cli.good("consume", topic, "-e", "--json").out
    other = f"{topic}-copy"
    any_cli.good("topics", "create", other, "--partitions", "3")
    feed(monkeypatch, printed.encode())
    any_cli.good("produce", other, "--input", "json")
    ours, theirs = records(any_cli, topic), records(any_cli, other)
    assert [{**each, "topic": topic} for each in theirs] == ours
    assert ours[0]["value"] == '{"a":[1,"ü"]}'
    assert ours[1]["valueBase64"] == "AP8="
    assert ours[2]["value"] is None


def test_a_format_of_lines_says_how_keys_and_values_are_encoded(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, b"00ff /wA=%{x}\n")
    any_cli.good("produce", topic, "-f", "%k{hex} %v{base64}%%{x}", "-p", "0")
    assert any_cli.good("consume", topic, "-e", "-f", "%k{hex} %v{hex}").out == "00ff ff00"


def test_each_raw_file_is_a_record(any_cli: CommandLine, topic: str, tmp_path: Path) -> None:
    for name, data in (("a", b"one\ntwo\n"), ("b", b""), ("c", b"three")):
        (tmp_path / name).write_bytes(data)
    files = [argument for name in "abc" for argument in ("-l", str(tmp_path / name))]
    any_cli.good("produce", topic, "-i", "raw", "-p", "0", *files)
    assert any_cli.good("consume", topic, "-e", "-D", ";").out == "one\ntwo\n;;three;"


@pytest.mark.parametrize("options", [(), ("--transactional-id", "stops-early")])
def test_produce_stops_after_a_number_of_records_and_reads_no_further(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as read, os.fdopen(writing, "wb", buffering=0) as write:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(read))
        write.write(b"1\n2\n3\n4")
        assert any_cli.good("produce", topic, "-n", "2", "-p", "0", "--json", *options).json["records"] == 2
        # Kafka answers the commit before its markers are in the partitions.
        committed = "consume", topic, "-e", "--isolation-level", "read_committed"
        found = wait_until(lambda: any_cli.good(*committed).out, "the records are committed")
        assert found == "1\n2\n"
    assert any_cli.good("produce", topic, "a", "b", "c", "-c", "1", "--json").json["records"] == 1


def test_bytes_pass_whole_and_behind_their_sizes(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bytes(range(256)) * 300
    feed(monkeypatch, whole)
    any_cli.good("produce", topic, "--input", "raw", "-p", "0")
    feed(monkeypatch, b"\x00\x00\x00\x02\n\n\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x01x")
    any_cli.good("produce", topic, "--input", "sized", "-p", "1")
    assert any_cli.good("consume", topic, "-e", "-p", "0", "-f", "%v").out.encode("utf-8", "surrogateescape") == whole
    sized = any_cli.good("consume", topic, "-e", "-p", "1", "-f", "%R%v").out.encode("utf-8", "surrogateescape")
    assert sized == b"\x00\x00\x00\x02\n\n\x00\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x01x"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_and_every_kind_of_acknowledgement(any_cli: CommandLine, topic: str, acks: str, codec: str) -> None:
    reported = any_cli.good("produce", topic, "a" * 3000, "b", "-p", "0", "--acks", acks, "-z", codec, "--json").json
    assert reported["records"] == 2
    assert any_cli.good("consume", topic, "-p", "0", "-n", "2").out == "a" * 3000 + "\nb\n"


def test_another_client_reads_what_was_produced(any_cli: CommandLine, topic: str) -> None:
    any_cli.good("produce", topic, "hello", "-k", "k", "-H", "h=1")
    settings = {"bootstrap.servers": any_cli._bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value(), message.headers()) == (b"k", b"hello", [("h", b"1")])


def test_a_topic_that_is_not_there_is_made_only_when_asked_for(any_cli: CommandLine, topic: str) -> None:
    near = f"{topic[:-1]}_"
    said = any_cli.refused("produce", near, "x")
    assert f"no topic {near}; did you mean {topic}? (--create creates the topic)" in said
    any_cli.good("produce", near, "x", "--create")
    assert any_cli.good("consume", near, "-e").out == "x\n"


@pytest.mark.parametrize(
    ("options", "data", "said"),
    [
        (("-i", "json"), b'{"value":"a"}\n{"key":"b"}\n', 'record 2: \'{"key":"b"}\': expected an object with'),
        (("-i", "json"), b"{oops}\n", "record 1: '{oops}' is not JSON"),
        (("-f", "%k,%v"), b"a,b\nnone\n", "record 2: 'none' does not have the form of --format"),
        (("-f", "%k"), b"", "no value in it; write it as %v"),
        (("-f", "%v %q"), b"", "unknown verb %q"),
        (("-p", "7"), b"x", "has no partition 7; it has 3"),
        (("-i", "sized"), b"\x00\x00\x00\x09x", "the input ends within a record (5 bytes are left)"),
        (("-H", "a"), b"", "--header a: expected NAME=VALUE"),
        (("-K", "\\q"), b"", "unknown escape \\q"),
        (("-f", "%v{hex}"), b"0\n", "record 1: value '0' is not encoded as --format says"),
        (("-f", "%v{base64}"), b"AA==\n*\n", "record 2: value '*' is not encoded as --format says"),
        (("-f", "%v{oct}"), b"", "%v{oct}: expected %k or %v with {hex} or {base64}"),
        (("-f", "%p{hex} %v"), b"", "%p{hex}: expected %k or %v with {hex} or {base64}"),
        (("--acks", "1", "--idempotence"), b"", "--idempotence needs --acks all, not 1"),
        (("-l", "/nowhere/at/all"), b"", "/nowhere/at/all: No such file"),
        (("-i", "json"), b"[" * 100_000, "record 1: '[[["),
        (("-i", "json"), b'{"value":"a","partition":1e999}', "record 1: partition inf: expected a number from 0 on"),
        (("-i", "json"), b'{"value":"a","timestamp":1%s}' % (b"0" * 19), "record 1: timestamp 10000000000000000000"),
        (
            ("-i", "json"),
            b'{"value":"a","headers":{"\\ud800":"x"}}',
            "record 1: header '\\ud800': the name is not UTF-8",
        ),
        (("-i", "json"), '{"valueBase64":"é"}'.encode(), "record 1: valueBase64: expected text in Base64"),
        (("--timestamp", "9" * 20), b"", "expected a time from 1970 on, and within 64 bits"),
        (("--timestamp", "1969-12-31"), b"", "expected a time from 1970 on, and within 64 bits"),
        (("-H", "\udcff=a"), b"", "the name is not UTF-8"),
        (("--batch-size", "9" * 20), b"", "should be less than or equal to 2147483647"),
        (("--linger-ms", "9" * 20), b"", "should be less than or equal to 2147483647"),
    ],
)
def test_input_that_is_wrong_is_named(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], data: bytes, said: str
) -> None:
    feed(monkeypatch, data)
    assert said in any_cli.refused("produce", topic, *options, code=2)


def test_arguments_that_are_not_utf8_are_sent_as_the_bytes_that_they_are(any_cli: CommandLine, topic: str) -> None:
    any_cli.good("produce", topic, "\udcff", "-k", "\udcfe", "-H", "a=\udcfd")
    (record,) = records(any_cli, topic)
    assert (record["valueBase64"], record["keyBase64"]) == ("/w==", "/g==")
    assert record["headers"] == [{"key": "a", "valueBase64": "/Q=="}]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_produce_waits_for_input_ends_it_in_order(
    any_cli: CommandLine, topic: str, signum: signal.Signals
) -> None:
    command = [sys.executable, "-m", "stratalog", "produce", topic, "-b", any_cli._bootstrap_servers]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        while any_cli.good("consume", topic, "-e").out != "one\n":
            assert process.poll() is None
        process.send_signal(signum)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""


def test_a_record_that_the_broker_refuses_is_named_and_those_before_it_are_there(
    any_cli: CommandLine, topic: str
) -> None:
    said = any_cli.refused("produce", topic, "good", "x" * 2_000_000, "-p", "0", "--batch-size", "1")
    assert said.startswith("record 2: MESSAGE_SIZE_TOO_LARGE")
    assert any_cli.good("consume", topic, "-e").out == "good\n"


def test_no_broker_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    gone = CommandLine(address, capsys)
    for args in (("produce", "t", "x"), ("consume", "t")):
        assert gone.refused(*args, code=2) == f"cannot reach a broker at {address}: Connection refused"


# --- consume ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ten(any_cli: CommandLine, topic: str) -> str:
    """Records 0 to 9 in partition 0, a second apart."""
    for number in range(10):
        at = 1_700_000_000_000 + 1000 * number
        any_cli.good("produce", topic, str(number), "-p", "0", "-k", f"k{number % 2}", "--timestamp", str(at))
    return topic


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("-e",), "0123456789"),
        (("-o", "start", "-n", "2"), "01"),
        (("-o", "7", "-e"), "789"),
        (("-o", "-3", "-e"), "789"),
        (("-o", "+8", "-e"), "89"),
        (("-o", "2-5"), "234"),
        (("-o", "2:5"), "234"),
        (("-o", ":2"), "01"),
        (("-o", ":end"), "0123456789"),
        (("-o", "end", "-e"), ""),
        (("-o", "99", "-e"), ""),
        (("-o", "@1700000008", "-e"), "89"),
        (("-o", "s@1700000002000", "-o", "e@1700000004000"), "23"),
        (("-o", "@2023-11-14T22:13:22Z:2023-11-14T22:13:24Z"), "23"),
        (("--from", "2023-11-14T22:13:28", "-e"), "89"),
        (("--to", "1700000001000"), "0"),
        (("-o", "@-1h", "-e"), ""),
        (("-o", "0=3-5", "-o", "end", "-e"), "34"),
        (("-p", "1", "-e"), ""),
        (("-n", "0"), ""),
    ],
)
def test_offsets_say_where_to_begin_and_where_to_stop(
    any_cli: CommandLine, ten: str, options: tuple[str, ...], expected: str
) -> None:
    assert any_cli.good("consume", ten, *options).out == "".join(f"{each}\n" for each in expected)


def test_a_range_of_records_that_were_deleted_begins_where_the_log_does(any_cli: CommandLine, topic: str) -> None:
    any_cli.good("produce", topic, "x", "-p", "0", "--timestamp", "1700000000000")
    assert any_cli.good("consume", topic, "-o", "0-1").out == "x\n"


def test_a_format_has_verbs(any_cli: CommandLine, topic: str) -> None:
    any_cli.good("produce", topic, "vä", "-k", "k", "-H", "a=1", "-H", "b=2", "-p", "2", "--timestamp", "1700000000123")
    text = r"%t %p %o %k %v %s %h %H %K %V %S %T %d %d{iso} %d{%H:%M} %v{hex} %k{base64} %%\t%%{x}\n"
    assert any_cli.good("consume", topic, "-e", "-f", text).out == (
        f"{topic} 2 0 k vä vä a=1,b=2 2 1 3 3 1700000000123 1700000000123 2023-11-14T22:13:20.123Z 22:13 76c3a4 aw== "
        "%\t%{x}\n"
    )
    any_cli.good("produce", topic, "", "-Z", "-p", "2")
    assert any_cli.good("consume", topic, "-o", "2=1", "-e", "-p", "2", "-Z", "-K", "%", "-D", ";").out == "NULL%NULL;"


def test_a_format_numbers_records_and_has_one_for_headers(any_cli: CommandLine, topic: str) -> None:
    any_cli.good("produce", topic, "x", "y", "-H", "a=1", "-H", "b=22", "-p", "0")
    text = r"%i %h{<%k{hex}=%v:%V%%>}\n"
    assert any_cli.good("consume", topic, "-e", "-f", text).out == "".join(
        f"{number} <61=1:1%><62=22:2%>\n" for number in (1, 2)
    )


def test_numbers_are_read_out_of_bytes(any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def consumed(*options: str) -> str:
        return any_cli.good("consume", topic, "-e", *options).out

    layout = ">bBhHiIqQ<hd c"
    values = (-1, 255, -2, 65535, -3, 4294967295, -4, 2**64 - 1, -5, 1.5, b"x")
    packed = struct.pack(">bBhHiIqQ", *values[:8]) + struct.pack("<hdc", *values[8:])
    feed(monkeypatch, f"{packed.hex()} {b'rest'.hex()}\n".encode())
    any_cli.good("produce", topic, "-f", "%v{hex} %k{hex}", "-p", "0")
    any_cli.good("produce", topic, "", "-Z", "-p", "0")
    numbers = [*values[:10], "x"]
    first, second = map(json.loads, consumed("--json", "-s", f"value={layout}$", "-s", "key=s").splitlines())
    assert (first["value"], first["key"]) == (numbers, "rest")
    assert (second["value"], second["key"]) == (None, None)
    assert json.loads(consumed("-s", f"value={layout}s", "-n", "1")) == [*numbers, ""]
    assert consumed("--unpack", "value=b", "-f", "%v", "--filter", "value < 0") == "-1"


def test_bytes_without_their_layout_end_the_command_behind_what_is_before_them(
    any_cli: CommandLine, topic: str
) -> None:
    any_cli.good("produce", topic, "AAAA", "BBBB", "C", "-p", "0")
    for layout, said in (("value=i", "1 bytes do not have the layout i: 4 are needed"), ("c$", "it ends after 1")):
        ran = any_cli("consume", topic, "-e", "-s", layout)
        assert ran.code == 1
        assert f"{topic}-0 at offset" in ran.err
        assert said in ran.err
        assert ran.out == ("1094795585\n1111638594\n" if layout == "value=i" else "")
    assert any_cli.good("consume", topic, "-n", "2", "-s", "value=i").out == "1094795585\n1111638594\n"


def test_metadata_of_records_alone(any_cli: CommandLine, topic: str) -> None:
    any_cli.good("produce", topic, "value", "-k", "k", "-p", "0")
    any_cli.good("produce", topic, "", "-Z", "-p", "0")
    first, second = map(json.loads, any_cli.good("consume", topic, "-e", "--json", "--meta-only").out.splitlines())
    assert (first["key"], first["valueSize"], second["valueSize"]) == ("k", 5, None)
    assert "value" not in first


def test_topics_match_a_regular_expression_as_a_whole(any_cli: CommandLine, topic: str) -> None:
    for name in (f"{topic}.a", f"{topic}.b", f"{topic}.ab"):
        any_cli.good("produce", name, name, "--create")
    out = any_cli.good("consume", rf"{topic}\.[ab]", "--regex", "-e").out
    assert sorted(out.split()) == [f"{topic}.a", f"{topic}.b"]
    assert "no topic matches nothing-.*" in any_cli.refused("consume", "nothing-.*", "-r")
    assert "--regex (: missing" in any_cli.refused("consume", "(", "-r", code=2)


def test_a_group_goes_on_where_it_has_committed(any_cli: CommandLine, ten: str) -> None:
    group = f"g-{ten}"
    assert any_cli.good("consume", ten, "-G", group, "-n", "4").out == "0\n1\n2\n3\n"
    assert any_cli.good("consume", ten, "-G", group, "-e", "--no-commit").out == "4\n5\n6\n7\n8\n9\n"
    assert any_cli.good("consume", ten, "-G", group, "-e", "--filter", "key == 'none'").out == ""
    assert any_cli.good("consume", ten, "-G", group, "-e").out == ""
    assert any_cli.good("consume", ten, "-G", f"{group}-late", "-o", "end", "-e").out == ""
    for options in (("-o", "5"), ("-p", "0"), ("-o", "1-2")):
        assert "--group" in any_cli.refused("consume", ten, "-G", group, *options, code=2)


def test_what_a_transaction_left_is_read_by_its_isolation_level(any_cli: CommandLine, topic: str) -> None:
    settings = {"bootstrap.servers": any_cli._bootstrap_servers, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions()
    for value, ends_well in ((b"kept", True), (b"dropped", False)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush()
        if ends_well:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    assert any_cli.good("consume", topic, "-e").out == "kept\ndropped\n"
    assert any_cli.good("consume", topic, "-e", "--isolation-level", "read_committed").out == "kept\n"
    group = ("-G", f"g-{topic}")
    assert any_cli.good("consume", topic, "-e", "--isolation-level", "read_committed", *group).out == "kept\n"


def test_control_records_and_what_batches_hold_are_printed_on_request(any_cli: CommandLine, topic: str) -> None:
    any_cli.good("produce", topic, "plain", "-p", "0", "--no-idempotence")
    settings = {"bootstrap.servers": any_cli._bootstrap_servers, "transactional.id": topic}
    producer = Producer(settings)
    producer.init_transactions()
    for value, ends_well in ((b"kept", True), (b"dropped", False)):
        producer.begin_transaction()
        producer.produce(topic, value, key=b"0123", partition=0)
        producer.flush()
        if ends_well:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    every = ("consume", topic, "-e", "--control-records")
    wait_until(lambda: "abort" in any_cli.good(*every, "-f", "%c").out, "the last marker is in the partition")
    found = [json.loads(line) for line in any_cli.good(*every, "--json").out.splitlines()]
    (producer_id,) = {each["producerId"] for each in found[1:]}
    assert producer_id >= 0
    assert [(each["offset"], each.get("value"), each["control"]) for each in found if not each["control"]] == [
        (0, "plain", None),
        (1, "kept", None),
        (3, "dropped", None),
    ]
    assert [(each["offset"], each["control"]) for each in found if each["control"]] == [(2, "commit"), (4, "abort")]
    assert (found[0]["leaderEpoch"], found[0]["producerId"], found[0]["producerEpoch"]) == (0, None, None)
    committed = ("--isolation-level", "read_committed")
    text = r"%o %e %x %c\n"
    assert any_cli.good(*every, *committed, "-f", text).out.splitlines() == [
        "0 0 -1 ",
        f"1 0 {producer_id} ",
        f"2 0 {producer_id} commit",
        f"4 0 {producer_id} abort",
    ]
    assert any_cli.good("consume", topic, "-e", *committed, "-f", "%v %e;").out == "plain 0;kept 0;"
    assert any_cli.good("consume", topic, "-o", "0=1-4", "-p", "0", "-f", "%o%c;").out == "1;3;"
    numbers = any_cli.good(*every, "-o", "0=1", "-p", "0", "-s", "key=i", "-f", "%k%c;").out
    assert numbers.count("808530483") == 2  # a layout is for records, not for markers


def test_the_broker_learns_the_rack_of_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    racks = set()
    select = k01_fetch._selector

    def noted(caller: Any, request: Any) -> Any:
        racks.add(request.rack)
        return select(caller, request)

    monkeypatch.setattr(k01_fetch, "_selector", noted)
    with Broker(data_dir=tmp_path, config={"group.initial.rebalance.delay.ms": "0"}) as broker:
        to = ("-b", broker.bootstrap_servers)
        assert run(["produce", "orders", "x", "--create", *to]) == 0
        assert run(["consume", "orders", "-n", "1", "--rack", "eu-1", *to]) == 0
        assert racks == {"eu-1"}
        assert run(["consume", "orders", "-n", "1", "--rack", "eu-2", "-G", "g", *to]) == 0
        assert racks == {"eu-1", "eu-2"}
    assert capsys.readouterr().out == "x\nx\n"


def test_new_records_of_several_partitions_are_followed_with_their_epochs(any_cli: CommandLine, topic: str) -> None:
    for partition in ("0", "1", "2"):
        any_cli.good("produce", topic, partition, "-p", partition)
    out = any_cli.good("consume", topic, "-n", "3", "-f", "%p %v %e\n").out
    assert sorted(out.splitlines()) == ["0 0 0", "1 1 0", "2 2 0"]


def test_records_are_chosen_by_a_condition(any_cli: CommandLine, ten: str) -> None:
    assert any_cli.good("consume", ten, "-e", "--filter", "key == 'k1' and offset >= 5").out == "5\n7\n9\n"
    assert any_cli.good("consume", ten, "-n", "2", "--filter", "key ~ '1$'").out == "1\n3\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "sometime"), "--offset sometime: expected start, end, N, N-M"),
        (("-o", "5-2"), "the end is before the start"),
        (("-o", "@late"), "expected 2026-01-31"),
        (("-o", "1", "-o", "2"), "given twice for the same partitions"),
        (("-o", "9=start"), "no partition 9"),
        (("-p", "9"), "no partition 9"),
        (("-f", "%z"), "unknown verb %z"),
        (("--control-records", "-G", "g"), "give neither --group nor --rack"),
        (("-f", "%e", "--rack", "r"), "give neither --group nor --rack"),
        (("-f", "%v{oct}"), "expected hex or base64"),
        (("-f", "%h{%o}"), "unknown verb %o of a header"),
        (("-f", "%t{hex}"), "%t takes nothing in braces"),
        (("--meta-only",), "--meta-only needs --json"),
        (("-s", "z"), "--unpack z: unknown letter z; expected b B h H"),
        (("-s", "i$i"), "--unpack i$i: i stands behind the end"),
        (("-s", "value="), "nothing to read"),
        (("-s", "header=i"), "expected LAYOUT, key=LAYOUT or value=LAYOUT"),
        (("-s", "i", "-s", "key=i"), "the key has a layout already"),
        (("-s", "i", "--schema-registry", "h:1"), "give either --schema-registry or --unpack"),
        (("-f", "%v", "--json"), "give either --json or --format"),
        (("--filter", "value ="), "expected a field, a text in quotes or a number at the end"),
    ],
)
def test_options_that_say_nothing_usable_are_named(
    any_cli: CommandLine, topic: str, options: tuple[str, ...], said: str
) -> None:
    assert said in any_cli.refused("consume", topic, *options, code=2)


def test_a_person_sees_where_and_when_and_nothing_moves_the_terminal(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_command, "on_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TZ", "UTC")
    at = ("-p", "0", "--timestamp", "1700000000000")
    any_cli.good("produce", topic, "x\x1b[2J\u202e👨‍👩‍👧\ty", "-k", "k", "-H", "h=\x07", *at)
    any_cli.good("produce", topic, "", "-Z", *at)
    monkeypatch.setenv("NO_COLOR", "1")
    assert any_cli.good("consume", topic, "-e").out == (
        "0:0 2023-11-14 22:13:20  k  x\\x1b[2J\\u202e👨‍👩‍👧\ty  [h=\\x07]\n0:1 2023-11-14 22:13:20  null\n"
    )
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[36mk\x1b[0m" in any_cli.good("consume", topic, "-e").out
