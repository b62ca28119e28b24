"""`stratalog produce --transactional-id`: all of a transaction is visible, or nothing, whatever ends the command."""

from __future__ import annotations

import io
import signal
import subprocess
import sys

import pytest
from confluent_kafka import Producer
from tests.cli.admin_commands import CommandLine
from tests.support.waiting import wait_until


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def expect_committed(any_cli: CommandLine, topic: str, values: list[str]) -> None:
    """Wait for these records: Kafka answers a commit before its markers are written."""

    def seen() -> list[str]:
        return any_cli.good("consume", topic, "-e", "--isolation-level", "read_committed").out.split()

    wait_until(lambda: len(seen()) >= len(values), f"{len(values)} records are committed")
    assert seen() == values


def test_the_whole_input_is_one_transaction(any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"one\ntwo\nthree\n")
    ran = any_cli.good("produce", topic, "-p", "0", "--transactional-id", topic, "--json")
    assert ran.json["records"] == 3
    expect_committed(any_cli, topic, ["one", "two", "three"])
    # three records and one marker
    assert any_cli.good("consume", topic, "-e", "-f", "%o ").out == "0 1 2 "
    any_cli.good("produce", topic, "after", "-p", "0")
    assert any_cli.good("consume", topic, "-e", "-o", "3", "-f", "%o").out == "4"


def test_a_transaction_has_as_many_records_as_asked_for(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed(monkeypatch, b"".join(b"%d\n" % number for number in range(7)))
    any_cli.good("produce", topic, "-p", "0", "--transactional-id", topic, "--transaction-records", "3")
    # a marker stands at 3, 7 and 9
    assert any_cli.good("consume", topic, "-e", "-f", "%o ").out == "0 1 2 4 5 6 8 "
    expect_committed(any_cli, topic, list("0123456"))


def test_no_records_are_no_transaction(any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feed(monkeypatch, b"")
    any_cli.good("produce", topic, "--transactional-id", topic)
    assert any_cli.good("consume", topic, "-e").out == ""


def test_wrong_input_aborts_its_transaction_and_says_what_is_committed(
    any_cli: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("-i", "json", "-p", "0", "--transactional-id", topic)
    feed(monkeypatch, b'{"value":"a"}\n{"value":"b"}\n{"value":"c"}\n{oops}\n')
    said = any_cli.refused("produce", topic, *options, "--transaction-records", "2", code=2)
    assert said.startswith("record 4: '{oops}' is not JSON")
    assert said.endswith("; committed before: 2 records, and nothing of the open transaction will be visible")
    expect_committed(any_cli, topic, ["a", "b"])
    feed(monkeypatch, b'{"value":"d"}\n')
    any_cli.good("produce", topic, *options)  # nothing is in its way
    expect_committed(any_cli, topic, ["a", "b", "d"])


def test_a_record_that_the_broker_refuses_aborts_its_transaction(any_cli: CommandLine, topic: str) -> None:
    said = any_cli.refused("produce", topic, "good", "x" * 2_000_000, "-p", "0", "--transactional-id", topic)
    assert said.startswith("record 2: MESSAGE_SIZE_TOO_LARGE")
    assert "committed before: 0 records" in said
    expect_committed(any_cli, topic, [])


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_half_visible_after_a_signal(any_cli: CommandLine, topic: str, signum: signal.Signals) -> None:
    command = [sys.executable, "-m", "stratalog", "produce", topic, "-b", any_cli._bootstrap_servers, "-p", "0"]
    command += ["--transactional-id", topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"one\ntwo\n")
        process.stdin.flush()
        while any_cli.good("consume", topic, "-e").out != "one\ntwo\n":
            assert process.poll() is None
        process.send_signal(signum)
        assert process.wait(60) == (130 if signum is not signal.SIGKILL else -signal.SIGKILL)
        assert process.stderr.read() == b""
    any_cli.good("produce", topic, "next", "-p", "0", "--transactional-id", topic)  # ends what was left open
    expect_committed(any_cli, topic, ["next"])
    # the abort of the first one, where the signal left time for it, and not a second one
    assert any_cli.good("consume", topic, "-e", "-f", "%o ").out == "0 1 3 "


def test_a_producer_that_was_replaced_says_so(any_cli: CommandLine, topic: str) -> None:
    command = [sys.executable, "-m", "stratalog", "produce", topic, "-b", any_cli._bootstrap_servers, "-p", "0"]
    command += ["--transactional-id", topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        while any_cli.good("consume", topic, "-e").out != "one\n":
            assert process.poll() is None
        other = Producer({"bootstrap.servers": any_cli._bootstrap_servers, "transactional.id": topic})
        other.init_transactions()
        process.stdin.write("two\n")
        process.stdin.close()
        process.stdin = None
        assert process.wait(60) == 1
        (said,) = process.stderr.read().splitlines()
    assert "another producer began with this id, or the transaction was open for more than 60,000 ms" in said
    assert said.endswith("nothing of the open transaction will be visible")
    expect_committed(any_cli, topic, [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--transactional-id", "t", "--acks", "1"), "--transactional-id needs --acks all and idempotence"),
        (("--transactional-id", "t", "--no-idempotence"), "--transactional-id needs --acks all and idempotence"),
        (("--transactional-id", ""), "--transactional-id: expected at least one character"),
        (("--transaction-records", "5"), "--transaction-records needs --transactional-id ID"),
        (("--transactional-id", "t", "--transaction-records", "0"), "greater than or equal to 1"),
        (
            ("--transactional-id", "t", "--transaction-timeout-ms", "2000000000"),
            "transactional id t, timeout of 2,000,000,000 ms: INVALID_TRANSACTION_TIMEOUT",
        ),
    ],
)
def test_options_that_no_transaction_can_have_are_named(
    any_cli: CommandLine, topic: str, options: tuple[str, ...], said: str
) -> None:
    ran = any_cli("produce", topic, "x", *options)
    assert (ran.code in (1, 2), ran.out) == (True, "")
    (line,) = ran.err.splitlines()
    assert said in line
