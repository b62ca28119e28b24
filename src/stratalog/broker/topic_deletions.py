"""Deleting topics, with all that groups have committed for them; share groups forget that they read them.

The steps, and what a crash after each of them leaves to the next start, which goes on with the second:

    1. the store says that the topic is being deleted    clients do not see it any more; its name stays taken
    2. its directories are renamed, its remote segments marked for deletion
    3. tombstones for its commits, on disk               a new topic of its name must not begin at an old commit
    4. the store forgets the topic                       its name is free

Who asked for it may be gone before it is done. Kafka writes the tombstones after the name is free, and a new topic may
come before them; there and here a commit also has the id of its topic, and does not count for another one.
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
    from stratalog.broker.topics import TopicManager
    from stratalog.broker.workers import Workers
    from stratalog.engine import Partition

logger = logging.getLogger(__name__)


class TopicDeletions:
    """See the module. Belongs to the loop's thread."""

    def __init__(self, topics: TopicManager, groups: GroupCoordinator, workers: Workers) -> None:
        self._topics = topics
        self._groups = groups
        self._workers = workers
        self._going_on: set[asyncio.Task[Topic]] = set()

    def resume(self) -> None:
        """At startup, before clients are served: go on with what was interrupted, as far as commits are there.

        May block.
        """
        for topic in self._topics.resume_deletions():
            if self._groups.loading.is_over:
                try:
                    written: set[Partition] = set()
                    self._groups.shares.forget_topics()
                    for piece in self._groups.commits.remove_topic(topic.name):
                        written |= piece
                    self._finish(topic, written)
                except (StratalogError, OSError):
                    self._leave_unfinished(topic)
            else:
                self._go_on(self._forget(topic))

    async def delete(self, name: str) -> Topic:
        """Delete a topic; it goes on when the caller is cancelled. UnknownTopicOrPartitionError when there is none.

        While commits are still read back at a start, this waits for them: they can be forgotten only then. If the disk
        refuses the tombstones, the topic is gone and its name taken until the next start can write them.
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
        await self._groups.loading.wait()
        try:
            written: set[Partition] = set()
            self._groups.shares.forget_topics()
            for piece in self._groups.commits.remove_topic(topic.name):
                written |= piece
                await asyncio.sleep(0)  # others have their turn
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
            "Commits for %s, which is deleted, cannot be removed; its name stays taken until the next start can",
            topic.name,
        )
