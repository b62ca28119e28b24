from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from tests.records.strategies import Model, batches, logs

from stratalog.records import Codec, RecordBatch, iter_batches
from stratalog.records.columns import COLUMN_SCHEMA, decode_columns, decode_columns_plain


@pytest.mark.parametrize("codec", Codec)
@given(st.data())
@settings(deadline=None, max_examples=60)
def test_a_view_reads_what_the_builder_wrote(codec: Codec, data: st.DataObject) -> None:
    """Invariant: every header field and every record of a built batch reads back as it was given."""
    model = data.draw(batches(codec=codec))
    encoded = model.encoded()
    batch = RecordBatch(encoded)
    batch.ensure_valid()
    expected = model.expected()
    assert batch.size == len(encoded)
    assert batch.codec is codec
    assert batch.record_count == len(expected)
    assert batch.last_offset == expected[-1].offset
    assert batch.max_timestamp == max(record.timestamp_ms for record in expected)
    assert batch.delete_horizon_ms == model.options["delete_horizon_ms"]
    for name in (
        "base_offset",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "partition_leader_epoch",
        "is_transactional",
    ):
        assert getattr(batch, name) == model.options[name], name
    assert list(batch.records()) == expected


@given(logs())
@settings(deadline=None, max_examples=150)
def test_columns_hold_what_the_builder_wrote(models: list[Model]) -> None:
    """Invariant: the columns of a log are the rows of its records, natively and plainly decoded alike."""
    data = b"".join(model.encoded() for model in models)
    rows = [row for model in models for row in model.rows()]
    columns = decode_columns(data)
    columns.validate(full=True)
    assert columns.schema.equals(COLUMN_SCHEMA)
    assert columns.to_pylist() == rows
    assert columns.equals(decode_columns_plain(data))


@given(logs().filter(bool), st.data())
@settings(deadline=None, max_examples=100)
def test_a_range_of_offsets_is_a_filter(models: list[Model], data: st.DataObject) -> None:
    """Invariant: decoding with an offset range and a choice of columns equals decoding all and filtering."""
    encoded = b"".join(model.encoded() for model in models)
    first, last = models[0].options["base_offset"], models[-1].records[-1].offset
    bound = st.none() | st.integers(first - 1, last + 2)
    start, end = data.draw(bound), data.draw(bound)
    names = data.draw(st.sets(st.sampled_from(COLUMN_SCHEMA.names), min_size=1))
    columns = decode_columns(encoded, start_offset=start, end_offset=end, columns=names)
    columns.validate(full=True)
    expected = [
        {name: value for name, value in row.items() if name in names}
        for model in models
        for row in model.rows()
        if (start is None or row["offset"] >= start) and (end is None or row["offset"] < end)
    ]
    assert columns.to_pylist() == expected


@given(logs(), st.integers(0, 2**20))
@settings(deadline=None, max_examples=60)
def test_an_incomplete_tail_ends_the_iteration(models: list[Model], cut: int) -> None:
    """Invariant: of a log cut anywhere, exactly the whole batches are seen."""
    encoded = [model.encoded() for model in models]
    data = b"".join(encoded)
    cut = min(cut, len(data))
    whole = 0
    while whole < len(encoded) and sum(map(len, encoded[: whole + 1])) <= cut:
        whole += 1
    assert len(list(iter_batches(data[:cut]))) == whole
    assert decode_columns(data[:cut]).num_rows == sum(len(model.records) for model in models[:whole])
