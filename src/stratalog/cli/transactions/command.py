"""`stratalog transactions list|describe|abort|find-hanging`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from stratalog.cli.connection import ClusterOptions
from stratalog.cli.options import Json, JsonLines
from stratalog.cli.out import on_terminal, print_json
from stratalog.cli.tier import span_ms
from stratalog.cli.topic_lookup import named_topics
from stratalog.cli.transactions.queries import (
    ActiveProducer,
    TopicPartition,
    active_producers,
    describe_transactions,
    hanging,
    list_transactions,
)
from stratalog.errors import UsageError
from stratalog.util import SYSTEM_CLOCK, TableColumn, print_table
from stratalog.wire import ApiKey
from stratalog.wire.client import Cluster, Coordinators, RefusedError, check

#: For a transaction that hung before its producer's first marker, whose coordinator's epoch is not known.
_OLDEST_EPOCH = 0
_TIMEOUT_MS = 60_000


def list_(
    servers: ClusterOptions,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only those in this state: Ongoing, Empty, ..."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", metavar="N", help="Only those of this producer id.")
    ] = None,
    longer_than: Annotated[
        str | None, typer.Option("--longer-than", metavar="SPAN", help="Only transactions open for longer: 90s, 5m.")
    ] = None,
    json_: JsonLines = False,
) -> int:
    """List transactional ids and the states of their transactions.

    \b
    Examples:
      stratalog transactions list -b h:9092
      stratalog transactions list --state Ongoing --longer-than 5m -b h:9092
    """
    longer_than_ms = -1 if longer_than is None else span_ms(longer_than, "--longer-than")
    with servers.open() as cluster:
        found = list_transactions(cluster, state or (), producer_id or (), longer_than_ms)
    if json_:
        for each in found.values():
            print_json(
                {
                    "transactionalId": each.transactional_id,
                    "coordinator": each.coordinator,
                    "producerId": each.producer_id,
                    "state": each.state,
                }
            )
        return 0
    columns = ("transactional id", "coordinator", "producer id", "state")
    rows = [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in found.values()]
    print_table(columns, rows, is_terminal=on_terminal())
    return 0


def describe(
    names: Annotated[list[str], typer.Argument(metavar="ID..", show_default=False, help="Transactional ids.")],
    servers: ClusterOptions,
    json_: JsonLines = False,
) -> int:
    """Describe transactional ids: the producer, the state, how long the transaction is open, its partitions.

    \b
    Example:
      stratalog transactions describe payments -b h:9092
    """
    now_ms = SYSTEM_CLOCK.now_ms()
    with servers.open() as cluster:
        found = describe_transactions(cluster, names)
    if json_:
        for each in found:
            print_json(
                {
                    "transactionalId": each.summary.transactional_id,
                    "coordinator": each.summary.coordinator,
                    "producerId": each.summary.producer_id,
                    "producerEpoch": each.producer_epoch,
                    "state": each.summary.state,
                    "timeoutMs": each.timeout_ms,
                    "startTimeMs": each.started_ms,
                    "partitions": [{"topic": topic, "partition": number} for topic, number in each.partitions],
                }
            )
        return 0
    columns = (
        TableColumn("transactional id"),
        TableColumn("state"),
        TableColumn("open for", is_number=True),
        TableColumn("partitions"),
        TableColumn("producer id", rank=1, is_number=True),
        TableColumn("epoch", rank=2, is_number=True),
        TableColumn("timeout ms", rank=3, is_number=True),
        TableColumn("coordinator", rank=4, is_number=True),
    )
    rows = [
        (
            each.summary.transactional_id,
            each.summary.state,
            "-" if each.started_ms is None else _span_text(now_ms - each.started_ms),
            " ".join(f"{topic}-{number}" for topic, number in each.partitions) or "-",
            each.summary.producer_id,
            each.producer_epoch,
            each.timeout_ms,
            each.summary.coordinator,
        )
        for each in found
    ]
    print_table(columns, rows, is_terminal=on_terminal())
    return 0


def abort(
    servers: ClusterOptions,
    transactional_id: Annotated[
        str | None,
        typer.Argument(metavar="ID", show_default=False, help="Transactional id: its transaction is aborted."),
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", metavar="T", help="Topic of a hanging transaction.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Its partition.")] = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, help="Its first offset, as find-hanging shows it.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, help="Its producer id, in place of --start-offset.")
    ] = None,
    json_: Json = False,
) -> int:
    """Abort the transaction of a transactional id, or one that hangs in a partition.

    By its ID the producer is fenced: its next request fails. In a partition an abort marker is written, which is for
    transactions that no coordinator knows (see find-hanging).

    \b
    Examples:
      stratalog transactions abort payments -b h:9092
      stratalog transactions abort --topic orders --partition 0 --start-offset 42 \\
        -b h:9092
    """
    in_partition = (topic, partition) != (None, None)
    if (transactional_id is not None) == in_partition:
        raise UsageError("give either ID, or --topic, --partition and --start-offset")
    with servers.open() as cluster:
        if transactional_id is not None:
            (before,) = describe_transactions(cluster, [transactional_id])
            Coordinators(cluster).init_producer(transactional_id, _TIMEOUT_MS)
            fields: dict[str, Any] = {"transactionalId": transactional_id, "stateBefore": before.summary.state}
            line = f"{transactional_id} was {before.summary.state}; its producer is fenced"
        else:
            if topic is None or partition is None or (start_offset is None) == (producer_id is None):
                raise UsageError("give --topic, --partition, and either --start-offset or --producer-id")
            producer = _producer_at(cluster, (topic, partition), start_offset, producer_id)
            _write_abort_marker(cluster, producer)
            fields = _as_json(producer)
            line = f"aborted the transaction of producer {producer.producer_id} in {topic}-{partition}"
    if json_:
        print_json({**fields, "aborted": True})
    else:
        print(line)
    return 0


def find_hanging(
    servers: ClusterOptions,
    topic: Annotated[list[str] | None, typer.Option("--topic", metavar="T", help="Only this topic.")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition.")] = None,
    broker_id: Annotated[int | None, typer.Option("--broker-id", help="Only partitions that it leads.")] = None,
    max_transaction_timeout: Annotated[
        str,
        typer.Option(
            "--max-transaction-timeout", metavar="SPAN", help="transaction.max.timeout.ms of the brokers: 15m, 90s."
        ),
    ] = "15m",
    json_: JsonLines = False,
) -> int:
    """Find transactions that are open in a partition and that no coordinator knows.

    They hold back the last stable offset, so readers of committed records wait. Exit code 1: there are some.

    \b
    Examples:
      stratalog transactions find-hanging -b h:9092
      stratalog transactions find-hanging --topic orders --partition 0 --json -b h:9092
    """
    oldest_ms = SYSTEM_CLOCK.now_ms() - span_ms(max_transaction_timeout, "--max-transaction-timeout")
    if partition is not None and not topic:
        raise UsageError("--partition needs --topic")
    with servers.open() as cluster:
        topics = named_topics(cluster, topic) if topic else cluster.topics()
        keys = [
            (name, number)
            for name, each in topics.items()
            for number, info in each.partitions.items()
            if (partition is None or number == partition) and (broker_id is None or info.leader == broker_id)
        ]
        open_ = [each for each in active_producers(cluster, keys) if each.start_offset is not None]
        found = hanging(cluster, [each for each in open_ if each.last_timestamp_ms < oldest_ms])
    if json_:
        for producer in found:
            print_json(_as_json(producer))
    elif found or not on_terminal():
        columns = ("topic", "partition", "start offset", "producer id", "epoch", "last write")
        now_ms = SYSTEM_CLOCK.now_ms()
        rows = [
            (
                each.topic,
                each.partition,
                each.start_offset,
                each.producer_id,
                each.producer_epoch,
                f"{_span_text(now_ms - each.last_timestamp_ms)} ago",
            )
            for each in found
        ]
        print_table(columns, rows, is_terminal=on_terminal())
    else:
        print("no transaction hangs")
    return 1 if found else 0


def _producer_at(
    cluster: Cluster, key: TopicPartition, start_offset: int | None, producer_id: int | None
) -> ActiveProducer:
    named_topics(cluster, [key[0]])
    open_ = [each for each in active_producers(cluster, [key]) if each.start_offset is not None]
    for each in open_:
        if each.start_offset == start_offset or each.producer_id == producer_id:
            return each
    known = ", ".join(f"{each.start_offset} of producer {each.producer_id}" for each in open_)
    raise RefusedError(
        f"{key[0]}-{key[1]}: no such transaction is open there; " + (f"open are {known}" if known else "none is open")
    )


def _write_abort_marker(cluster: Cluster, producer: ActiveProducer) -> None:
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": producer.topic, "partition_indexes": (producer.partition,)}],
        "coordinator_epoch": max(producer.coordinator_epoch, _OLDEST_EPOCH),
    }
    leader = cluster.leader(producer.topic, producer.partition)
    for answer in leader.call(ApiKey.WRITE_TXN_MARKERS, (0, 1), markers=[marker]).markers:
        for topic in answer.topics:
            for part in topic.partitions:
                check(part.error_code, what=f"{topic.name}-{part.partition_index}")


def _as_json(producer: ActiveProducer) -> dict[str, Any]:
    return {
        "topic": producer.topic,
        "partition": producer.partition,
        "producerId": producer.producer_id,
        "producerEpoch": producer.producer_epoch,
        "coordinatorEpoch": producer.coordinator_epoch,
        "startOffset": producer.start_offset,
        "lastTimestampMs": producer.last_timestamp_ms,
    }


def _span_text(span_ms: int) -> str:
    """Return a span of time, to be read: 90 s, 15 min, 30 h."""
    seconds = max(span_ms, 0) // 1000
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"
