"""KIP-1333's integration scenarios, by their names: segments change their size under a topic, and no record notices.

`BEFORE` the feature is finalized indexes have entries of 8 bytes, `AFTER` it of 12; the stories are the same.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException

from tests.scenarios.tiered_story import AFTER, BEFORE, GIB, MIB, TieredStory

levels = pytest.mark.parametrize("level", [BEFORE, AFTER], ids=["before finalization", "after it"])


@levels
def test_offload_and_consume_from_leader(tmp_path: Path, level: int) -> None:
    """Kafka's OffloadAndConsumeFromLeaderTest."""
    with TieredStory(tmp_path, level=level) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1", "k2")
        a.expect_remote({0: ["k0"], 1: ["k1"]})
        a.expect_earliest_local_offset(2)
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2"], of_them_remote=2)

        b = story.create_topic("b", batches_per_segment=2)
        b.produce("k0", "k1", "k2", "k3", "k4")
        b.expect_remote({0: ["k0", "k1"], 2: ["k2", "k3"]})
        b.expect_earliest_local_offset(4)

        story.bounce()
        a.expect_consumed(from_offset=1, keys=["k1", "k2"], of_them_remote=1)
        b.expect_consumed(from_offset=1, keys=["k1", "k2", "k3", "k4"], of_them_remote=3)


@levels
def test_roll_and_offload_active_segment(tmp_path: Path, level: int) -> None:
    """Kafka's RollAndOffloadActiveSegmentTest: local retention rolls the active segment, too, so that it can go."""
    with TieredStory(tmp_path, level=level) as story:
        a = story.create_topic("a", batches_per_segment=1, local_retention_bytes=-2)
        a.configure(local_retention_ms=1)
        a.produce("k0", "k1", "k2", "k3")
        a.expect_remote({0: ["k0"], 1: ["k1"], 2: ["k2"], 3: ["k3"]})
        a.expect_earliest_local_offset(4)
        a.expect_consumed(from_offset=0, keys=["k0", "k1", "k2", "k3"], of_them_remote=4)


@levels
def test_dynamic_segment_size_change(tmp_path: Path, level: int) -> None:
    """KIP-1333's DynamicSegmentSizeChangeTest: one batch for a segment, then three, in one topic, through a bounce."""
    with TieredStory(tmp_path, level=level) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1", "k2")
        a.expect_remote({0: ["k0"], 1: ["k1"]})
        a.expect_earliest_local_offset(2)

        a.configure(segment_bytes=3 * MIB)
        a.produce("k3", "k4", "k5", "k6", "k7", "k8")
        a.expect_remote({0: ["k0"], 1: ["k1"], 2: ["k2", "k3", "k4"], 5: ["k5", "k6", "k7"]})
        a.expect_remote_sizes(1, 1, 3, 3)
        a.expect_earliest_local_offset(8)

        story.bounce()
        keys = [f"k{number}" for number in range(9)]
        a.expect_consumed(from_offset=0, keys=keys, of_them_remote=8)

        a.configure(segment_bytes=MIB)  # and back
        a.produce("k9", "k10")
        a.expect_earliest_local_offset(10)
        a.expect_remote_sizes(1, 1, 3, 3, 1, 1)
        a.expect_consumed(from_offset=0, keys=[*keys, "k9", "k10"], of_them_remote=10)
        a.expect_index_entries_of(*[8 if level == BEFORE else 12] * 6)


def test_one_gb_four_gb_one_gb_live_with_a_remote_tier(tmp_path: Path) -> None:
    """KIP-1333's manual end-to-end test: 3000 records at 1 GB, 1000 more at 4 GB, 500 more at 1 GB, all there each
    time.

    Local retention rolls every segment soon, so that each size has segments in the remote tier.
    """
    with TieredStory(tmp_path, level=AFTER) as story:
        a = story.create_topic("a", segment_bytes=GIB, segment_index_bytes=16 * MIB, local_retention_bytes=-2)
        a.configure(local_retention_ms=1)
        produced = 0
        for segment_bytes, count in ((GIB, 3000), (4 * GIB, 1000), (GIB, 500)):
            a.configure(segment_bytes=segment_bytes)
            assert a.log.config.segment_bytes == segment_bytes
            a.produce_many(produced, count)
            produced += count
            keys = [str(number) for number in range(produced)]
            assert a.consume(0, produced) == list(enumerate(keys))
            a.expect_earliest_local_offset(produced)
            a.expect_consumed(from_offset=0, keys=keys, of_them_remote=produced)
        assert [key for keys in a.remote.values() for key in keys] == keys
        a.expect_index_entries_of(*[12] * len(a.manifests))


def test_a_larger_segment_is_refused_before_finalization_and_the_tier_goes_on(tmp_path: Path) -> None:
    with TieredStory(tmp_path, level=BEFORE) as story:
        a = story.create_topic("a", batches_per_segment=1)
        a.produce("k0", "k1")
        with pytest.raises(KafkaException, match=r"segment\.bytes"):
            a.configure(segment_bytes=4 * GIB)
        assert a.log.config.segment_bytes == MIB
        a.expect_earliest_local_offset(1)
        a.expect_consumed(from_offset=0, keys=["k0", "k1"], of_them_remote=1)
