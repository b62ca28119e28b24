"""Delete topics, with the commits of groups and the share states for them.

The steps, the second of which the next start resumes after a crash:

    1. the store marks the topic as being deleted        clients no longer see it; its name stays reserved
    2. its directories are renamed, its remote segments marked for deletion
    3. tombstones for its commits, on disk               a new topic of its name must not use old commits
    4. the store removes the topic                       its name is free

The client may disconnect before the end. Kafka writes the tombstones after the name is free, so a new topic may come
before them; both there and here a commit has the id of its topic, and does not apply to another one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from stratalog.errors import StratalogError

if TYPE_CHECKING:
    from stratalog.broker.groups import GroupCoordinator
    from stratalog.broker.metadata import Topic
    from stratalog.broker.share import ShareStates
    from stratalog.broker.topics import TopicManager
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)


class TopicDeletions:
    """See the module. Belongs to the loop's thread."""

    def __init__(
        self, topics: TopicManager, groups: GroupCoordinator, share_states: ShareStates, workers: Workers
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._share_states = share_states
        self._workers = workers
        self._going_on: set[asyncio.Task[Topic]] = set()

    def resume(self) -> None:
        """Resume interrupted deletions at startup, as far as commits are loaded. May block."""
        for topic in self._topics.resume_deletions():
            if self._groups.loading.is_over:
                try:
                    written: set[Partition] = set()
                    self._groups.forget_deleted_topics()
                    for piece in self._groups.commits.remove_topic(topic.name):
                        written |= piece
                    self._finish(topic, written)
                except (StratalogError, OSError):
                    self._leave_unfinished(topic)
            else:
                self._go_on(self._forget(topic))

    async def delete(self, name: str) -> Topic:
        """Delete a topic, even if the caller is cancelled. UnknownTopicOrPartitionError if it does not exist.

        Waits while commits are loading, as they have to be deleted too. If the tombstones cannot be written, the topic
        is deleted but its name stays reserved until the next start can write them.
        """
        return await asyncio.shield(self._go_on(self._delete(name)))

    def _go_on(self, work: Coroutine[Any, Any, Topic]) -> asyncio.Task[Topic]:
        task = self._workers.loop.create_task(work)
        self._going_on.add(task)
        task.add_done_callback(self._going_on.discard)
        return task

    async def _delete(self, name: str) -> Topic:
        return await self._forget(await self._workers.run(self._topics.begin_deletion, name))

    async def _forget(self, topic: Topic) -> Topic:
        await self._share_states.forget_topic(topic.topic_id)
        await self._groups.loading.wait()
        try:
            written: set[Partition] = set()
            self._groups.forget_deleted_topics()
            for piece in self._groups.commits.remove_topic(topic.name):
                written |= piece
                await asyncio.sleep(0)  # other requests get their turn
            await self._workers.run(self._finish, topic, written)
        except (StratalogError, OSError):
            self._leave_unfinished(topic)
        return topic

    def _finish(self, topic: Topic, written: Iterable[Partition]) -> None:
        for partition in written:
            partition.log.flush()
        self._topics.finish_deletion(topic)

    @staticmethod
    def _leave_unfinished(topic: Topic) -> None:
        logger.exception(
            "Commits for the deleted topic %s cannot be removed; its name stays reserved until the next start can",
            topic.name,
        )
