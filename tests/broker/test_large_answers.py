"""An answer with many elements is recognized, however deep in the message they are."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stratalog.broker.large_answers import has_many
from stratalog.broker.server import SlicedResponse
from stratalog.log.format import FileSlice
from stratalog.util import REAL_FILESYSTEM
from stratalog.wire import ApiKey, EncodedResponse, make_message, message_module, response_class


def markers(topics: int, partitions: int) -> Any:
    module = message_module(ApiKey.WRITE_TXN_MARKERS, 1, "response")
    parts = [make_message(module.WritableTxnMarkerPartitionResult, {"partition_index": n}) for n in range(partitions)]
    each = make_message(module.WritableTxnMarkerTopicResult, {"name": "t", "partitions": parts})
    result = make_message(module.WritableTxnMarkerResult, {"producer_id": 1, "topics": [each] * topics})
    return make_message(response_class(ApiKey.WRITE_TXN_MARKERS, 1), {"markers": [result]})


@pytest.mark.parametrize(("topics", "partitions", "many"), [(1, 498, False), (1, 499, True), (300, 1, True)])
def test_elements_count_at_any_depth(topics: int, partitions: int, many: bool) -> None:
    assert has_many(markers(topics, partitions)) is many


def test_answers_that_are_encoded_or_sent_from_files_stay_on_the_loop() -> None:
    assert not has_many(EncodedResponse(b"x" * 10_000, False, dict.fromkeys(range(1_000), 1)))
    with closing(REAL_FILESYSTEM.open(Path(__file__))) as file:
        assert not has_many(SlicedResponse(markers(600, 1), (FileSlice(file, 0, 1),) * 600))
