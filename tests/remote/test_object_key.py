from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.remote.api.interfaces import RemoteLogSegmentId
from stratalog.remote.api.topic_id_partition import TopicIdPartition
from stratalog.remote.storage.object_names import ObjectKey, ObjectKind, parse_topic_directory
from tests.remote.values import SEGMENT_ID


def test_a_key_reads_as_documented() -> None:
    key = ObjectKey(SEGMENT_ID, 4711, ObjectKind.LOG)
    assert str(key) == "flights-dfcT2RzVTaa2kKZb1VMYtg/3/00000000000000004711-hB5yJqzOSDmxmNHsV7oUaw.log"


@settings(deadline=None)
@given(
    topic=st.from_regex(r"[a-zA-Z0-9._-]{1,40}", fullmatch=True),
    topic_id=st.uuids(),
    segment=st.uuids(),
    partition=st.integers(0, 2**31 - 1),
    start=st.integers(0, 2**63 - 1),
    kind=st.sampled_from(ObjectKind),
)
def test_parsing_is_the_inverse_of_spelling(topic, topic_id, segment, partition, start, kind) -> None:  # type: ignore[no-untyped-def]
    """Whatever topic and ids are, a key parses to what it was made of."""
    segment_id = RemoteLogSegmentId(TopicIdPartition(topic_id, topic, partition), segment)
    key = ObjectKey(segment_id, start, kind)
    assert ObjectKey.parse(str(key)) == key
    assert parse_topic_directory(str(key).split("/")[0]) == topic


@pytest.mark.parametrize(
    "key",
    [
        "",
        "flights-dfcT2RzVTaa2kKZb1VMYtg/3/4711-hB5yJqzOSDmxmNHsV7oUaw.log",
        "flights-dfcT2RzVTaa2kKZb1VMYtg/03/00000000000000004711-hB5yJqzOSDmxmNHsV7oUaw.log",
        "flights-dfcT2RzVTaa2kKZb1VMYtg/3/00000000000000004711-hB5yJqzOSDmxmNHsV7oUaw.txt",
        "flights/3/00000000000000004711-hB5yJqzOSDmxmNHsV7oUaw.log",
        "flights-dfcT2RzVTaa2kKZb1VMYtg/3/00000000000000004711-hB5yJqzOSDmxmNHsV7oUaw.log/x",
    ],
)
def test_what_is_no_key_is_not_parsed(key: str) -> None:
    assert ObjectKey.parse(key) is None
