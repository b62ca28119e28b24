"""Topics created for clients: those in Metadata requests, and internal topics of streams groups.

Requests to the controllers are in the client's name, so that its access rules and quotas apply (KIP-590). Source:
`DefaultAutoTopicCreationManager` and `KRaftTopicCreator` of Kafka 4.4.0.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from stratalog.broker.cluster.forwarded_topics import replicated_topic
from stratalog.broker.cluster.forwarding import ForwardedClient, Forwarder
from stratalog.broker.internal_topics import INTERNAL_TOPICS, internal_topic_settings
from stratalog.errors import StratalogError, error_for_code
from stratalog.wire import ApiKey

if TYPE_CHECKING:
    from stratalog.broker.server import RequestContext
    from stratalog.config import BrokerConfig

logger = logging.getLogger(__name__)

_NEWEST: Final = 7
#: Kafka's default of `request.timeout.ms`.
_TIMEOUT_MS: Final = 30_000
#: Left to the controllers.
_UNSET: Final = -1


class ClientTopics:
    """Creates topics. Belongs to the loop's thread; requests block on `threads`."""

    def __init__(self, forwarder: Forwarder, threads: Executor) -> None:
        self._forwarder = forwarder
        self._threads = threads
        self._under_way: set[str] = set()

    def begin(self, ctx: RequestContext, names: Iterable[str]) -> None:
        """Create topics in the background, except those in progress."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._under_way]
        if not wanted:
            return
        self._under_way.update(wanted)
        made = self.create(ctx, [new_topic(name, ctx.broker.config) for name in wanted])
        made.add_done_callback(partial(self._end, wanted))

    def create(self, ctx: RequestContext, topics: Sequence[Mapping[str, Any]]) -> asyncio.Future[dict[str, str]]:
        """Create topics of a CreateTopics request; return failed ones with reasons. Raises as `Forwarder.forward`."""
        return ctx.broker.loop.run_in_executor(self._threads, self._ask, ForwardedClient.of(ctx), topics)

    def _ask(self, client: ForwardedClient, topics: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        answer = self._forwarder.ask_for(
            client, ApiKey.CREATE_TOPICS, _NEWEST, topics=topics, timeout=_TIMEOUT_MS, validate_only=False
        )
        return {
            each.name: each.error_message or str(error_for_code(int(each.error_code))())
            for each in answer.topics
            if int(each.error_code)
        }

    def _end(self, names: Sequence[str], made: asyncio.Future[dict[str, str]]) -> None:
        self._under_way.difference_update(names)
        if made.cancelled():
            return
        error = made.exception()
        if error is not None and not isinstance(error, StratalogError):
            logger.error("Topics %s could not be requested", ", ".join(names), exc_info=error)
            return
        failed = dict.fromkeys(names, str(error)) if error is not None else made.result()
        for name, why in failed.items():
            logger.warning("Topic %s was requested but cannot be created: %s", name, why)


def new_topic(name: str, config: BrokerConfig) -> dict[str, Any]:
    """Return a topic for CreateTopics: an internal one as this broker would create it for itself.

    Of another one, settings that are not in this broker's file are left to the controllers.
    """
    if name in INTERNAL_TOPICS:
        return replicated_topic(name, internal_topic_settings(name, config), config)
    partitions, replicas = (
        config[key] if config.is_set(key) else _UNSET for key in ("num.partitions", "default.replication.factor")
    )
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [],
        "configs": [],
    }
