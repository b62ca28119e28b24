from __future__ import annotations

import pytest

from stratalog.errors import UsageError
from stratalog.records.compression import Codec
from stratalog.spark.sink.broker_options import BrokerSinkOptions
from stratalog.spark.sink.options import SinkOptions


def test_defaults() -> None:
    options = SinkOptions.parse({"path": "/data", "topic": "t"})
    assert (options.codec, options.level, options.segment_bytes) == (Codec.NONE, None, 1 << 30)
    assert not options.log_config.use_large_index_format
    assert (options.query, options.numbered_batch) == (None, None)


def test_names_are_not_case_sensitive() -> None:
    options = SinkOptions.parse(
        {"PATH": "/data", "SegmentBytes": "64m", "INDEXFORMAT": "12", "Codec": "zstd", "level": "7"}
    )
    assert (options.segment_bytes, options.index_entry_size, options.level) == (64 << 20, 12, 7)
    assert options.log_config.use_large_index_format


def test_a_query_keeps_its_name() -> None:
    one, again, other = (
        SinkOptions.parse({"path": "/d", "queryId": name, "batchId": "3"}).numbered_batch for name in "aab"
    )
    assert one == again != other
    assert one is not None
    assert one.number == 3


def test_a_query_counts_its_batches_for_each_topic_by_itself() -> None:
    given = {"queryId": "q", "batchId": "3"}
    bulk = [SinkOptions.parse({"path": "/d", "topic": topic} | given).numbered_batch for topic in "aab"]
    assert bulk[0] == bulk[1] != bulk[2]
    address = {"kafka.bootstrap.servers": "127.0.0.1:1"}
    broker = [BrokerSinkOptions.parse(address | {"topic": topic} | given).stream for topic in "aab"]
    assert broker[0] == broker[1] != broker[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give option path .* or remote"),
        ({"path": "/a", "remote": "s3://b"}, "goes to one place"),
        ({"path": "/a,/b"}, "goes to one place"),
        ({"path": "/a", "codec": "brotli"}, "option codec=brotli: expected none, gzip"),
        ({"path": "/a", "level": "3"}, "option level=3: codec none has no levels"),
        ({"path": "/a", "codec": "gzip", "level": "10"}, "option level=10: expected 1 to 9 for gzip"),
        ({"path": "/a", "partitions": "0"}, "option partitions=0: expected"),
        ({"path": "/a", "indexFormat": "16"}, "option indexFormat=16: expected 8 or 12"),
        ({"path": "/a", "segmentBytes": "3g"}, "option segmentBytes=3221225472: with indexFormat 8 at most"),
        (
            {"path": "/a", "segmentBytes": "1k"},
            "option batchBytes=131072: expected no more than segmentBytes=1024",
        ),
        ({"path": "/a", "segmentSize": "1g"}, "option segmentSize=1g is unknown"),
        ({"path": "/a", "batchId": "1"}, "option queryId has to say whose"),
        ({"path": "/a", "queryId": "q", "batchId": "-1"}, "option batchId=-1: expected a whole number"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        SinkOptions.parse(options)


def test_large_segments_need_large_indexes_only() -> None:
    options = SinkOptions.parse({"path": "/a", "segmentBytes": "3g", "indexFormat": "12"})
    assert options.log_config.segment_bytes == 3 << 30
