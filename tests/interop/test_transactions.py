"""Kafka's own transactional client and tools against our broker, and `__transaction_state` in either broker's hands."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import stratalog
from stratalog.broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from stratalog.broker.transactions.states import TransactionState
from stratalog.records.batch import iter_batches
from stratalog.wire.api_keys import ApiKey
from tests.broker.transactions.cases import Script, script
from tests.interop.test_kafka_serves_our_directory import put_in_place
from tests.support.killable_broker import KillableBroker
from tests.support.reference_jars import BROKER_JARS, SHORT_LIVED, TOOLS_JARS, classpath, java
from tests.support.reference_kafka import ReferenceKafka, dump_log, require_reference_kafka, tool

pytestmark = pytest.mark.interop

WAIT_S = 60
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
# A copier asks for its position, for 60 s at most, before it ends what a killed one with its id left open. Offsets of
# an open transaction hold that answer back, so the transaction must time out well before.
TRANSACTION_TIMEOUT_MS = 20_000
STATE_DIR = "__transaction_state-0"


@pytest.fixture(scope="module", autouse=True)
def _kafka_tools() -> None:
    require_reference_kafka()


# --- the Java client --------------------------------------------------------------------------------------------------


def copier(bootstrap_servers: str, errors: Path) -> subprocess.Popen[str]:
    """Kafka 4.4's producer and consumer, copying `in` to `out` with records and offsets in one transaction."""
    command = [java(), *SHORT_LIVED, "-Xmx256m"]
    command += ["-cp", classpath(BROKER_JARS, TOOLS_JARS), COPIER, "--broker-list", bootstrap_servers]
    command += ["--input-topic", "in", "--input-partition", "0", "--output-topic", "out"]
    command += ["--consumer-group", "copy", "--transactional-id", "copy", "--transaction-size", "20"]
    command += ["--transaction-timeout", str(TRANSACTION_TIMEOUT_MS)]
    command += ["--use-group-metadata", "--enable-random-aborts"]
    with errors.open("w") as file:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=file, text=True)


def progress(running: subprocess.Popen[str]) -> Iterator[int]:
    """How many records it has left, as it tells."""
    assert running.stdout is not None
    for line in running.stdout:
        reported = json.loads(line) if line.startswith("{") else {}
        if "remaining" in reported:
            yield int(reported["remaining"])


def test_the_java_client_copies_each_record_once_while_broker_and_client_are_killed(tmp_path: Path) -> None:
    """With transactions version 2: the broker adds partitions, and each end raises the epoch."""
    total = 1_000
    with KillableBroker(tmp_path / "data", settings={"group.initial.rebalance.delay.ms": "0"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 3})
        for made in admin.create_topics([NewTopic("in", 1, 1), NewTopic("out", 1, 1)]).values():
            made.result(WAIT_S)
        source = Producer({"bootstrap.servers": broker.address})
        for number in range(total):
            source.produce("in", f"{number:04d}".encode())
        source.flush(WAIT_S)
        with copier(broker.address, tmp_path / "first") as first:
            for left in progress(first):
                if left <= 800:
                    break
            broker.end(signal.SIGKILL)
            broker.start()
            for left in progress(first):
                if left <= 500:
                    break
            first.kill()
        with copier(broker.address, tmp_path / "second") as second:
            left_then = list(progress(second))
            assert (left_then[-1:], second.wait()) == ([0], 0), (tmp_path / "second").read_text()[-5000:]
        broker.end(signal.SIGTERM)
    with stratalog.Broker(data_dir=tmp_path / "data") as ours:
        made_script = Script(ours.bootstrap_servers)
        values: list[str] = []
        offset = 0
        while offset < (end := end_of(ours, "out")):
            offset = read(made_script, "out", offset, values)
        assert end
        assert values == [f"{number:04d}" for number in range(total)]
        (known,) = ours.services.transactions.transactions()
        assert known.client_version == 2
        assert known.producer_epoch > total // 20
        made_script.asker.close()


def end_of(broker: stratalog.Broker, topic: str) -> int:
    partition = broker.services.partition(topic, 0)
    assert partition is not None
    return partition.log.last_stable_offset


def read(made: Script, topic: str, offset: int, values: list[str]) -> int:
    """Add the committed values from `offset` on; where to go on."""
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 10**6}
    answer = made.asker.call(
        ApiKey.FETCH,
        11,
        replica_id=-1,
        max_wait=0,
        min_bytes=0,
        max_bytes=10**6,
        isolation_level=1,
        session_epoch=-1,
        rack_id="",
        topics=[{"topic": topic, "partitions": [wanted]}],
    )
    (got,) = answer.responses[0].partitions
    aborted = sorted((entry.first_offset, entry.producer_id) for entry in got.aborted_transactions or ())
    dropped: set[int] = set()
    for batch in iter_batches(got.records or b""):
        while aborted and aborted[0][0] <= batch.last_offset:
            dropped.add(aborted.pop(0)[1])
        if batch.is_control:
            dropped.discard(batch.producer_id)
        elif batch.producer_id not in dropped:
            values += [bytes(record.value or b"").decode() for record in batch.records()]
        offset = batch.next_offset
    return offset


# --- the tool ---------------------------------------------------------------------------------------------------------


def transactions(bootstrap_servers: str, *args: str) -> list[dict[str, str]]:
    """What `kafka-transactions.sh` prints as a table, by the columns of its head."""
    printed = tool("org.apache.kafka.tools.TransactionsCommand", ["--bootstrap-server", bootstrap_servers, *args])
    head, *lines = [re.split(r"\s+", line.strip()) for line in printed.splitlines() if line.strip()] or [[]]
    return [dict(zip(head, line, strict=False)) for line in lines]


def test_kafka_transactions_lists_describes_finds_and_ends(tmp_path: Path) -> None:
    config = {
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.partition.verification.enable": "false",
    }
    with stratalog.Broker(data_dir=tmp_path, config=config) as broker, script(broker.bootstrap_servers) as s:
        mine = s.init("init", "tx")
        where = broker.bootstrap_servers
        (listed,) = [found for found in transactions(where, "list") if found["TransactionalId"] == "tx"]
        assert (listed["ProducerId"], listed["TransactionState"]) == (str(mine[0]), "Empty")
        (reported,) = transactions(where, "describe", "--transactional-id", "tx")
        assert (reported["ProducerEpoch"], reported["TransactionState"]) == ("0", "Empty")
        # Records of a transaction that the coordinator does not know of: no one would ever end it.
        s.produce("hanging", "tx", mine, version=11)
        (found,) = transactions(where, "describe-producers", "--topic", "one", "--partition", "0")
        assert found["ProducerId"] == str(mine[0])
        assert found["CurrentTransactionStartOffset"] == "0"
        transactions(where, "abort", "--topic", "one", "--partition", "0", "--start-offset", "0")
        s.contents("after", "one", 0, committed=True)
        assert s.answers["after"][1:] == [[0], 2]


# --- `__transaction_state` --------------------------------------------------------------------------------------------


def stored(directory: Path) -> list[tuple[bytes, bytes | None]]:
    """Key and value of each record, in order."""
    return [
        (bytes(record.key or b""), None if record.value is None else bytes(record.value))
        for path in sorted(directory.glob("*.log"))
        for batch in iter_batches(path.read_bytes())
        for record in batch.records()
    ]


def lives(s: Script) -> tuple[int, int]:
    """Ids in several states; the producer of `open`, whose transaction no one has ended."""
    old = s.init("old: init", "old")
    s.add("old: add", "old", old, ("one", 0), ("one", 1))
    s.end("old: end", "old", old, True)
    new = s.init("new: init", "new")
    s.produce("new: produce", "new", new)
    s.end("new: end", "new", new, False, version=5)
    left_open = s.init("open: init", "open")
    s.produce("open: produce", "open", left_open)
    return left_open


def test_kafka_takes_over_our_transactions_and_we_read_its(kafka: ReferenceKafka, tmp_path: Path) -> None:
    config = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with (
        stratalog.Broker(data_dir=tmp_path / "ours", config=config) as broker,
        script(broker.bootstrap_servers) as s,
    ):
        left_open = lives(s)
        known = {found.transactional_id: found for found in broker.services.transactions.transactions()}
    ours = tmp_path / "ours" / STATE_DIR
    (log,) = [path for path in ours.glob("*.log") if path.stat().st_size]
    printed = dump_log(["--files", str(log), "--transaction-log-decoder"])
    reported = [json.loads(found) for found in re.findall(r"payload: (\{.*\})", printed)]
    assert [found["version"] for found in reported] == ["1"] * len(stored(ours))
    with script(kafka.bootstrap_servers) as theirs:
        before = stored_by(kafka, theirs)
    assert before
    with kafka.stopped():
        put_in_place(kafka, ours)
    theirs = Script(kafka.bootstrap_servers)
    await_loaded(theirs)
    for name, found in known.items():
        if found.state is not TransactionState.EMPTY:  # the message library cannot read a start time of -1
            theirs.describe(name, name)
            (state,) = theirs.answers[name]["transaction_states"]
            assert state["error_code"] == 0
            assert (state["transaction_state"], state["producer_epoch"]) == (
                found.state.title,
                found.producer_epoch,
            )
    # Kafka goes on with our producer: what it left open is aborted, and it is fenced.
    theirs.init("fence", "open", again=False)
    assert theirs.answers["fence"]["error_code"] == 51
    assert theirs.init("again", "open") == (left_open[0], left_open[1] + 2)
    theirs.asker.close()


def await_loaded(s: Script) -> None:
    """Wait until the coordinator has read its partition."""
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = s.asker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["old"])
        if answer["transaction_states"][0]["error_code"] not in (14, 15, 16):
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def stored_by(kafka: ReferenceKafka, s: Script) -> int:
    """Have Kafka store transactions; each of its records is read, and written again byte for byte.

    Kafka writes partitions in the order of its hash tables, which says nothing: of several the order may differ.
    """
    lives(s)
    seen = 0
    for key, value in stored(kafka.data_dir / STATE_DIR):
        name = decode_key(key)
        assert name is not None
        assert encode_key(name) == key
        if value is not None:
            found = decode_value(name, value)
            again = encode_value(found, int.from_bytes(value[:2], "big"))
            if len(found.partitions) < 2:
                assert again == value
            else:
                assert (decode_value(name, again), sorted(again)) == (found, sorted(value))
            seen += 1
    return seen
