"""The contract of metadata managers of the remote tier, as tests that their authors run.

    from stratalog.testing.remote_metadata_contract import RemoteLogMetadataManagerContract

    class TestMyManager(RemoteLogMetadataManagerContract):
        def make_plugin(self, tmp_path):
            plugin = MyManager()
            plugin.configure({"directory": str(tmp_path / "metadata")})
            return plugin

Run it with pytest. Every test gets a directory of its own; plugins made for the same one, one after the other, see the
same metadata, as after a restart. Needs pytest, which the extra `dev` brings; nothing else in the package imports this
module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from stratalog.errors import StratalogError
from stratalog.remote.api import (
    CustomMetadata,
    RemoteLogMetadataManager,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
)
from stratalog.util import random_uuid

_STARTED, _FINISHED, _DELETING, _DELETED = RemoteLogSegmentState


def _segment(
    partition: TopicIdPartition,
    start: int,
    end: int,
    epochs: dict[int, int] | None = None,
    *,
    aborts: bool = False,
) -> RemoteLogSegmentMetadata:
    """Return a segment as when its copy begins; 1000 bytes and one for each record."""
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId.generate_new(partition),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=1_700_000_000_000 + end,
        broker_id=1,
        event_timestamp_ms=1_700_000_001_000 + start,
        segment_size_bytes=1000 + end - start + 1,
        segment_leader_epochs=epochs or {0: start},
        txn_index_empty=not aborts,
    )


class RemoteLogMetadataManagerContract(ABC):
    """Subclass it as `Test...` and say how a plugin is made."""

    #: How long a mutator's future may take, in seconds.
    timeout_s: ClassVar[float] = 30.0

    @abstractmethod
    def make_plugin(self, tmp_path: Path) -> RemoteLogMetadataManager:
        """Return a plugin that is configured; those made with the same path share their metadata."""

    @pytest.fixture
    def plugin(self, tmp_path: Path, partition: TopicIdPartition) -> Iterator[RemoteLogMetadataManager]:
        made = self.make_plugin(tmp_path)
        made.on_partition_leadership_changes([partition], [])
        yield made
        made.close()

    @pytest.fixture
    def partition(self) -> TopicIdPartition:
        return TopicIdPartition(random_uuid(), "contract", 3)

    # --- what a test does -------------------------------------------------------------------------------------------

    def add(self, plugin: RemoteLogMetadataManager, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        plugin.add_remote_log_segment_metadata(segment).result(self.timeout_s)
        return segment

    def move(
        self,
        plugin: RemoteLogMetadataManager,
        segment: RemoteLogSegmentMetadata,
        *states: RemoteLogSegmentState,
        custom: CustomMetadata | None = None,
    ) -> None:
        """Bring a segment to each of these states, one after the other."""
        for state in states:
            update = RemoteLogSegmentMetadataUpdate(segment.segment_id, 1_700_000_002_000, custom, state, 1)
            plugin.update_remote_log_segment_metadata(update).result(self.timeout_s)

    def finish(self, plugin: RemoteLogMetadataManager, segment: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
        self.move(plugin, self.add(plugin, segment), _FINISHED)
        return segment

    def states(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> dict[RemoteLogSegmentId, RemoteLogSegmentState]:
        return {each.segment_id: each.state for each in plugin.list_remote_log_segments(partition)}

    # --- what it is -------------------------------------------------------------------------------------------------

    def test_it_is_a_metadata_manager(self, plugin: RemoteLogMetadataManager) -> None:
        assert isinstance(plugin, RemoteLogMetadataManager)

    def test_it_can_be_closed_twice(self, tmp_path: Path) -> None:
        plugin = self.make_plugin(tmp_path)
        plugin.close()
        plugin.close()

    def test_an_unknown_partition_has_no_segments(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        assert plugin.is_ready(partition)
        assert plugin.list_remote_log_segments(partition) == []
        assert plugin.list_remote_log_segments(partition, 0) == []
        assert plugin.remote_log_segment_metadata(partition, 0, 0) is None
        assert plugin.highest_offset_for_epoch(partition, 0) is None
        assert plugin.next_segment_with_txn_index(partition, 0, 0) is None
        assert plugin.remote_log_size(partition, 0) == 0

    # --- states -----------------------------------------------------------------------------------------------------

    def test_a_segment_is_seen_in_each_state_as_that_state_says(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        segment = _segment(partition, 10, 19)
        for state, is_listed, is_read in (
            (_STARTED, True, False),
            (_FINISHED, True, True),
            (_DELETING, True, False),
            (_DELETED, False, False),
        ):
            if state is _STARTED:
                self.add(plugin, segment)
            else:
                self.move(plugin, segment, state)
            assert self.states(plugin, partition) == ({segment.segment_id: state} if is_listed else {})
            found = plugin.remote_log_segment_metadata(partition, 0, 15)
            assert (found is not None) is is_read
            assert len(plugin.list_remote_log_segments(partition, 0)) == is_listed

    def test_all_that_was_said_of_a_segment_comes_back(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        segment = _segment(partition, 10, 29, {2: 10, 5: 20}, aborts=True)
        self.add(plugin, segment)
        self.move(plugin, segment, _FINISHED, custom=CustomMetadata(b"\x00custom"))
        (found,) = plugin.list_remote_log_segments(partition)
        assert found == replace(
            segment,
            state=_FINISHED,
            custom_metadata=CustomMetadata(b"\x00custom"),
            event_timestamp_ms=1_700_000_002_000,
        )

    def test_a_segment_is_added_as_started_and_never_updated_to_it(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        segment = _segment(partition, 0, 9)
        with pytest.raises(ValueError):
            plugin.add_remote_log_segment_metadata(replace(segment, state=_FINISHED))
        self.add(plugin, segment)
        with pytest.raises(ValueError):
            self.move(plugin, segment, _STARTED)

    def test_a_state_may_be_reported_twice(self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition) -> None:
        segment = _segment(partition, 0, 9)
        self.add(plugin, self.add(plugin, segment))
        self.move(plugin, segment, _FINISHED, _FINISHED, _DELETING, _DELETING)
        assert self.states(plugin, partition) == {segment.segment_id: _DELETING}

    def test_a_change_that_the_states_do_not_allow_changes_nothing(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        """Leave it to the manager whether the future of the change fails."""
        segment = self.finish(plugin, _segment(partition, 0, 9))
        update = RemoteLogSegmentMetadataUpdate(segment.segment_id, 1, None, _DELETED, 1)
        plugin.update_remote_log_segment_metadata(update).exception(self.timeout_s)
        assert self.states(plugin, partition) == {segment.segment_id: _FINISHED}

    def test_a_change_of_a_segment_that_is_not_known_fails(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        with pytest.raises(StratalogError):
            self.move(plugin, _segment(partition, 0, 9), _FINISHED)
        assert plugin.list_remote_log_segments(partition) == []

    # --- lookups ----------------------------------------------------------------------------------------------------

    def test_an_offset_is_found_within_its_leader_epoch(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        first = self.finish(plugin, _segment(partition, 0, 99, {0: 0, 1: 50}))
        second = self.finish(plugin, _segment(partition, 100, 199, {1: 100, 4: 150}))
        for epoch, offset, expected in (
            (0, 0, first),
            (0, 49, first),
            (0, 50, None),
            (1, 49, None),
            (1, 50, first),
            (1, 99, first),
            (1, 100, second),
            (1, 149, second),
            (1, 150, None),
            (4, 150, second),
            (4, 199, second),
            (4, 200, None),
            (2, 120, None),
        ):
            found = plugin.remote_log_segment_metadata(partition, epoch, offset)
            assert (None if found is None else found.segment_id) == (None if expected is None else expected.segment_id)
        assert [plugin.highest_offset_for_epoch(partition, epoch) for epoch in range(5)] == [
            49,
            149,
            None,
            None,
            199,
        ]

    def test_segments_of_an_epoch_come_by_start_offset(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        for start in (200, 0, 100):
            self.finish(plugin, _segment(partition, start, start + 99, {start // 200: start}))
        assert [each.start_offset for each in plugin.list_remote_log_segments(partition, 0)] == [0, 100]
        assert [each.start_offset for each in plugin.list_remote_log_segments(partition, 1)] == [200]
        assert plugin.remote_log_size(partition, 0) == 2200

    def test_of_segments_with_the_same_offsets_one_is_read_until_both_are_deleted(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        """After an election the new leader may copy again what its predecessor had copied."""
        both = [self.finish(plugin, _segment(partition, 0, 9)) for _ in range(2)]
        for gone in both:
            found = plugin.remote_log_segment_metadata(partition, 0, 5)
            assert found is not None
            assert found.segment_id in {each.segment_id for each in both}
            self.move(plugin, gone, _DELETING, _DELETED)
        assert plugin.remote_log_segment_metadata(partition, 0, 5) is None

    def test_the_next_segment_with_aborted_transactions_is_found(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        segments = [
            self.finish(plugin, _segment(partition, at, at + 9, aborts=at in (10, 30))) for at in range(0, 50, 10)
        ]
        for offset, expected in ((0, 1), (10, 1), (19, 1), (20, 3), (35, 3), (40, None)):
            found = plugin.next_segment_with_txn_index(partition, 0, offset)
            assert (None if found is None else found.segment_id) == (
                None if expected is None else segments[expected].segment_id
            )

    # --- partitions, restarts, threads ------------------------------------------------------------------------------

    def test_partitions_do_not_see_each_other(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        others = [replace(partition, partition=4), replace(partition, topic_id=random_uuid())]
        plugin.on_partition_leadership_changes(others, [])
        self.finish(plugin, _segment(partition, 0, 9))
        for other in others:
            assert plugin.list_remote_log_segments(other) == []
            assert plugin.remote_log_segment_metadata(other, 0, 5) is None

    def test_the_next_process_sees_what_this_one_saw(self, tmp_path: Path, partition: TopicIdPartition) -> None:
        first = self.make_plugin(tmp_path)
        first.on_partition_leadership_changes([partition], [])
        kept = self.finish(first, _segment(partition, 0, 9))
        self.move(first, self.finish(first, _segment(partition, 10, 19)), _DELETING, _DELETED)
        begun = self.add(first, _segment(partition, 20, 29))
        before = first.list_remote_log_segments(partition)
        first.close()
        second = self.make_plugin(tmp_path)
        second.on_partition_leadership_changes([partition], [])
        assert second.list_remote_log_segments(partition) == before
        assert self.states(second, partition) == {kept.segment_id: _FINISHED, begun.segment_id: _STARTED}
        assert second.highest_offset_for_epoch(partition, 0) == 19
        second.close()

    def test_the_deletion_of_a_partition_can_be_reported_to_its_end(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        segment = self.finish(plugin, _segment(partition, 0, 9))
        marked, started, finished = RemotePartitionDeleteState
        for state in (marked, started):
            plugin.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(partition, state, 1_700_000_003_000, 1)
            ).result(self.timeout_s)
        self.move(plugin, segment, _DELETING, _DELETED)
        plugin.put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(partition, finished, 1_700_000_004_000, 1)
        ).result(self.timeout_s)
        assert plugin.list_remote_log_segments(partition) == []
        plugin.on_stop_partitions([partition])

    def test_a_caller_sees_its_change_however_many_callers_there_are(
        self, plugin: RemoteLogMetadataManager, partition: TopicIdPartition
    ) -> None:
        def live(number: int) -> bool:
            segment = self.finish(plugin, _segment(partition, number * 10, number * 10 + 9))
            found = plugin.remote_log_segment_metadata(partition, 0, number * 10 + 5)
            return found is not None and found.segment_id == segment.segment_id

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(live, range(80)))
        assert len(plugin.list_remote_log_segments(partition)) == 80
