"""A user of the console: calls the broker's APIs in process, with the permissions of a client.

Every call goes through the handlers and guards of Kafka's protocol, so access rules, checks and the audit log are those
of clients. Calls to the thread-safe engine check `allows` first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from stratalog.broker import BrokerServices
from stratalog.broker.access import GUARDS, AclOperation, ResourceType, guarded
from stratalog.broker.apis import load_apis
from stratalog.broker.security import Peer, Principal
from stratalog.broker.server import ApiKey, Registry, RequestContext
from stratalog.config import LogConfig
from stratalog.engine import Partition
from stratalog.errors import (
    ClusterAuthorizationFailedError,
    StratalogError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    error_for_code,
)
from stratalog.web.in_process import CLIENT_ID, ask_by_frame
from stratalog.wire import (
    EncodedResponse,
    build_message,
    read_message,
    request_class,
    response_class,
)

_T = TypeVar("_T")

#: How long a page waits for the broker's loop.
LOOP_TIMEOUT_S = 4.0
CLUSTER = "kafka-cluster"


class BrokerStalledError(StratalogError):
    """The broker's loop does not respond in time."""


@dataclass(frozen=True, slots=True)
class ConsoleViewer:
    """The principal of one request to the web server. For threads other than the loop's."""

    broker: BrokerServices
    principal: Principal
    client_host: str = "127.0.0.1"
    may_change: bool = False

    def on_loop(self, look: Callable[[], _T]) -> _T:
        """Call `look` on the broker's loop. Raises BrokerStalledError."""

        async def run() -> _T:
            return look()

        return self.wait_for(run())

    def wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine on the broker's loop. Raises BrokerStalledError."""
        asked = asyncio.run_coroutine_threadsafe(work, self.broker.loop)
        try:
            return asked.result(LOOP_TIMEOUT_S)
        except TimeoutError:
            asked.cancel()
            raise BrokerStalledError(f"the broker did not respond within {LOOP_TIMEOUT_S:.0f} s") from None

    def peer(self) -> Peer:
        return Peer(self.broker.listener, self.client_host, principal=self.principal)

    def call(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        """Return the response of an API of Kafka's protocol. Parts of the request are dictionaries."""
        api = self._apis().get(int(key))
        if api is None or not api.min_version <= version <= api.max_version:
            raise UnsupportedVersionError(f"neither this broker nor its controllers support {key.message} {version}")
        request = build_message(request_class(key, version), fields)

        async def ask() -> Any:
            if api.handler is None:
                return await ask_by_frame(self.broker, api, version, self.peer(), request)
            ctx = RequestContext(self.broker, key, version, client_id=CLIENT_ID, peer=self.peer())
            response = api.handler(ctx, request)
            if asyncio.iscoroutine(response):
                response = await response
            if isinstance(response, EncodedResponse):
                response, _ = read_message(response_class(key, version), response.body)
            return response

        return self.wait_for(ask())

    def _apis(self) -> Registry:
        """Return the APIs of the broker and those it forwards to its controllers, with their guards."""
        cluster, access = self.broker.cluster, self.broker.access
        apis = load_apis() if cluster is None else cluster.served
        return apis if access is None else guarded(apis, access, GUARDS)

    def serves(self, key: ApiKey) -> bool:
        """Return whether the broker supports an API."""
        return key in self._apis()

    def allowed_topics(self, names: Iterable[str], operation: AclOperation = AclOperation.DESCRIBE) -> set[str]:
        """Return those of the topics to which the viewer may do this."""
        access = self.broker.access
        if access is None:
            return set(names)
        return self.on_loop(
            lambda: access.allowed_names(
                self.peer(), ApiKey.METADATA, operation, ResourceType.TOPIC, names, log_denied=False
            )
        )

    def may_cluster(self, operation: AclOperation = AclOperation.DESCRIBE) -> bool:
        access = self.broker.access
        if access is None:
            return True
        return self.on_loop(
            lambda: access.allows(
                self.peer(), ApiKey.DESCRIBE_CLUSTER, operation, ResourceType.CLUSTER, CLUSTER, log_denied=False
            )
        )

    def check_cluster(self) -> None:
        """Raise ClusterAuthorizationFailedError unless the viewer may describe the cluster."""
        if not self.may_cluster():
            raise ClusterAuthorizationFailedError("this page needs DESCRIBE on the cluster")

    def topics(self) -> list[str]:
        """Return the topics that the viewer may describe, in order."""
        names = [topic.name for topic in self.broker.metadata.topics()]
        return sorted(self.allowed_topics(names))

    def check_topic(self, topic: str, operation: AclOperation = AclOperation.DESCRIBE) -> None:
        """Raise unless the topic exists, and the viewer may do this to it."""
        known = self.broker.metadata.topic(topic)
        if known is None or topic not in self.allowed_topics([topic]):
            raise UnknownTopicOrPartitionError("the topic does not exist, or access is denied")
        if operation is not AclOperation.DESCRIBE and topic not in self.allowed_topics([topic], operation):
            raise TopicAuthorizationFailedError(f"this needs {operation.name} on the topic {topic}")

    def partition(self, topic: str, number: int) -> Partition:
        """Return a partition of a checked topic. Raises UnknownTopicOrPartitionError."""
        found = self.broker.logs.get(topic, number)
        if found is None:
            elsewhere = self.elsewhere(topic, number)
            raise UnknownTopicOrPartitionError(elsewhere or f"{topic} has no partition {number} here")
        return found

    def leader(self, topic: str, number: int) -> int | None:
        """Return the leader of a partition, -1 without one; None for an unknown partition."""
        if self.broker.cluster is not None:
            found = self.broker.cluster.leader(topic, number)
            return None if found is None else found[0]
        return self.broker.node_id if self.broker.has_partition(topic, number) else None

    def elsewhere(self, topic: str, number: int) -> str | None:
        """Return a hint for a partition without a local replica; None for an unknown partition."""
        leader = self.leader(topic, number)
        if leader is None or leader == self.broker.node_id:
            return None
        where = "no broker leads it now" if leader < 0 else f"broker {leader} leads it: look at its console"
        return f"{topic}-{number} has no replica on this broker; {where}"

    def here(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic with a local replica, in order."""
        return sorted(self.broker.logs.partitions(topic), key=lambda each: each.partition)

    def not_here(self, topic: str) -> str | None:
        """Return a sentence about the partitions of a topic without a local replica; None without any."""
        known = self.broker.metadata.topic(topic)
        here = {each.partition for each in self.broker.logs.partitions(topic)}
        missing = [n for n in range(0 if known is None else known.partition_count) if n not in here]
        if not missing:
            return None
        shown = ", ".join(map(str, missing[:10])) + (f" and {len(missing) - 10} more" if len(missing) > 10 else "")
        return f"Partitions {shown} of {topic} have no replica on this broker, and are not shown."

    def log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """Return the configuration of a topic with these properties. InvalidConfigError for a conflict."""
        large = self.broker.metadata.large_segments
        return LogConfig.from_properties(configs, self.broker.config, use_large_index_format=large)


def check_code(code: int, message: str | None = None) -> None:
    """Raise the error of an error code."""
    if code:
        kind = error_for_code(int(code))
        if message:
            raise kind(message)
        raise kind(kind.__name__.removesuffix("Error"))
