"""KIP-1333, test plan: config parsing and round-trip. `log.segment.bytes` and `segment.bytes` are longs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from stratalog.config.broker import BROKER_KEYS, BrokerConfig
from stratalog.config.keys import ConfigType
from stratalog.config.metadata_version import (
    INITIAL_LEVEL,
    VERSIONS,
    is_large_index_format_supported,
    level_for_release,
    level_name,
    lost_by_downgrade,
)
from stratalog.config.properties_file import parse_properties
from stratalog.config.topic import TOPIC_KEYS, LogConfig
from stratalog.errors import InvalidConfigError


def test_both_keys_are_longs_and_keep_their_default() -> None:
    for key in (TOPIC_KEYS["segment.bytes"], BROKER_KEYS["log.segment.bytes"]):
        assert (key.type, key.default) == (ConfigType.LONG, 1_073_741_824)


def test_what_was_written_for_an_int_is_read_as_a_long() -> None:
    assert LogConfig.from_properties({"segment.bytes": " 1073741824 "}).segment_bytes == 2**30
    properties = parse_properties("log.segment.bytes=1073741824\n", "server.properties")
    assert BrokerConfig(properties)["log.segment.bytes"] == 2**30


@settings(deadline=None)
@given(size=st.integers(2**20, 2**63 - 1))
def test_every_size_of_the_range_survives_text(size: int) -> None:
    """A size that is rendered and parsed again, on the topic or the broker, is the same size."""
    for key in (TOPIC_KEYS["segment.bytes"], BROKER_KEYS["log.segment.bytes"]):
        assert key.parse(key.render(size)) == size
    config = LogConfig.from_properties({"segment.bytes": str(size)}, use_large_index_format=True)
    assert config.segment_bytes == size
    inherited = LogConfig.from_properties(
        {}, BrokerConfig({"log.segment.bytes": str(size)}), use_large_index_format=True
    )
    assert inherited.segment_bytes == size


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("1048575", "Value must be at least 1048576"),
        ("-1", "Value must be at least 1048576"),
        (str(2**63), "Not a number of type LONG"),
        ("1e9", "Not a number of type LONG"),
        ("1_073_741_824", "Not a number of type LONG"),
        ("", "Not a number of type LONG"),
    ],
)
def test_what_is_no_size_at_any_level(text: str, why: str, large: bool) -> None:
    with pytest.raises(InvalidConfigError, match=why):
        LogConfig.from_properties({"segment.bytes": text}, use_large_index_format=large)
    with pytest.raises(InvalidConfigError, match=why):
        BrokerConfig({"log.segment.bytes": text})


def test_the_upper_end_is_gated_for_topics_and_for_the_broker() -> None:
    last, first = {"segment.bytes": str(2**31 - 1)}, {"segment.bytes": str(2**31)}
    assert LogConfig.from_properties(last).segment_bytes == 2**31 - 1
    with pytest.raises(InvalidConfigError, match=r"between 1048576 and 2147483647 .* features upgrade"):
        LogConfig.from_properties(first)
    assert LogConfig.from_properties(first, use_large_index_format=True).segment_bytes == 2**31
    BrokerConfig({"log.segment.bytes": str(2**31 - 1)}).check_segment_size(large=False)
    broker = BrokerConfig({"log.segment.bytes": str(2**31)})
    broker.check_segment_size(large=True)
    with pytest.raises(InvalidConfigError, match=r"for configuration log\.segment\.bytes: .*between 1048576"):
        broker.check_segment_size(large=False)


def test_level_32_is_the_one_that_supports_the_large_index_format() -> None:
    supporting = [known for known in VERSIONS if is_large_index_format_supported(known.level)]
    assert [(known.level, known.name) for known in supporting] == [(32, "4.4-IV1"), (33, "4.4-IV2")]
    assert supporting[0].metadata_changed
    assert INITIAL_LEVEL == 31
    assert level_for_release("4.4") == 33


def test_names_and_levels_go_both_ways() -> None:
    assert [known.level for known in VERSIONS] == list(range(7, 34))
    for known in VERSIONS:
        assert level_for_release(known.name) == known.level
        assert level_name(known.level) == known.name


@pytest.mark.parametrize(
    ("current", "level", "lost"),
    [(31, 7, None), (31, 30, None), (32, 31, 32), (33, 31, 33), (33, 32, 33), (33, 7, 33), (32, 32, None)],
)
def test_the_way_down_is_free_below_large_segments_only(current: int, level: int, lost: int | None) -> None:
    found = lost_by_downgrade(current, level)
    assert (None if found is None else found.level) == lost
