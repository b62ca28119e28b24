from __future__ import annotations

import pytest

from stratalog.errors import InvalidRecordError
from stratalog.records.control import (
    ControlType,
    control_key,
    end_transaction_marker,
    parse_control_key,
    parse_control_value,
)


@pytest.mark.parametrize("kind", [kind for kind in ControlType if kind is not ControlType.UNKNOWN])
def test_every_type_survives_the_round_trip(kind: ControlType) -> None:
    assert parse_control_key(control_key(kind)) is kind


def test_a_type_of_the_future_is_unknown_not_an_error() -> None:
    assert parse_control_key(b"\x00\x00\x00\x63") is ControlType.UNKNOWN


def test_a_key_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse_control_key(b"\x00\x05\x00\x01more") is ControlType.COMMIT
    assert parse_control_value(b"\x00\x05\x00\x00\x00\x07more").coordinator_epoch == 7


@pytest.mark.parametrize("key", [None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x01"])
def test_what_is_no_control_key_is_an_invalid_record(key: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="control record key"):
        parse_control_key(key)


@pytest.mark.parametrize("value", [None, b"", b"\x00\x00\x00\x00\x00", b"\xff\xff\x00\x00\x00\x01"])
def test_what_is_no_marker_value_is_an_invalid_record(value: bytes | None) -> None:
    with pytest.raises(InvalidRecordError, match="marker value"):
        parse_control_value(value)


def test_only_abort_and_commit_end_a_transaction() -> None:
    with pytest.raises(ValueError, match="LEADER_CHANGE"):
        end_transaction_marker(
            ControlType.LEADER_CHANGE, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=0
        )
