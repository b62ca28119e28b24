"""A person before the console, as the broker sees one: asks its APIs in process, and may do what any client may.

Every question goes through the handlers and guards that answer Kafka's protocol, so access rules, checks and the audit
log are those of clients. Questions to the engine, which is thread-safe, are preceded by `allows`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from stratalog.broker import BrokerServices
from stratalog.broker.access import GUARDS, AclOperation, ResourceType, guarded
from stratalog.broker.apis import load_apis
from stratalog.broker.security import Peer, Principal
from stratalog.broker.server import ApiKey, RequestContext
from stratalog.engine import Partition
from stratalog.errors import (
    ClusterAuthorizationFailedError,
    StratalogError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    error_for_code,
)
from stratalog.wire import (
    EncodedResponse,
    make_message,
    message_module,
    read_message,
    request_class,
    response_class,
)

_T = TypeVar("_T")

#: How long a page waits for the broker's loop.
LOOP_TIMEOUT_S = 4.0
CLUSTER = "kafka-cluster"


class BrokerStalledError(StratalogError):
    """The broker's loop does not answer in time."""


@dataclass(frozen=True, slots=True)
class ConsoleViewer:
    """One principal at one request of the web server. For threads other than the loop's."""

    broker: BrokerServices
    principal: Principal
    client_host: str = "127.0.0.1"
    may_change: bool = False

    # --- the broker's loop --------------------------------------------------------------------------------------------

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
            raise BrokerStalledError(f"the broker did not answer within {LOOP_TIMEOUT_S:.0f} s") from None

    def peer(self) -> Peer:
        return Peer(self.broker.listener, self.client_host, principal=self.principal)

    def call(self, key: ApiKey, version: int, build: Callable[[Callable[..., Any]], dict[str, Any]]) -> Any:
        """Ask an API of Kafka's protocol, and return its response.

        `build` is given what makes a part of the request by name, and returns the fields of the request.
        """
        apis = load_apis()
        if self.broker.access is not None:
            apis = guarded(apis, self.broker.access, GUARDS)
        api = apis[key]
        assert api.handler is not None
        handler = api.handler
        module = message_module(key, version, "request")

        def part(name: str, /, **fields: Any) -> Any:
            return make_message(getattr(module, name), fields)

        request = make_message(request_class(key, version), build(part))

        async def ask() -> Any:
            ctx = RequestContext(self.broker, key, version, client_id="stratalog-console", peer=self.peer())
            response = handler(ctx, request)
            if asyncio.iscoroutine(response):
                response = await response
            if isinstance(response, EncodedResponse):
                response, _ = read_message(response_class(key, version), response.body)
            return response

        return self.wait_for(ask())

    def serves(self, key: ApiKey) -> bool:
        """Return whether the broker speaks an API."""
        return key in load_apis()

    # --- access -------------------------------------------------------------------------------------------------------

    def allowed_topics(self, names: Iterable[str], operation: AclOperation = AclOperation.DESCRIBE) -> set[str]:
        """Return the topics, of these, to which the viewer may do this."""
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
        """ClusterAuthorizationFailedError unless the viewer may see what is of the broker as a whole."""
        if not self.may_cluster():
            raise ClusterAuthorizationFailedError("this page needs DESCRIBE on the cluster")

    def topics(self) -> list[str]:
        """Return the topics that the viewer may see, in order."""
        names = [topic.name for topic in self.broker.metadata.topics()]
        return sorted(self.allowed_topics(names))

    def check_topic(self, topic: str, operation: AclOperation = AclOperation.DESCRIBE) -> None:
        """Raise unless there is the topic, and the viewer may do this to it."""
        known = self.broker.metadata.topic(topic)
        if known is None or topic not in self.allowed_topics([topic]):
            raise UnknownTopicOrPartitionError("there is no such topic, or you may not see it")
        if operation is not AclOperation.DESCRIBE and topic not in self.allowed_topics([topic], operation):
            raise TopicAuthorizationFailedError(f"this needs {operation.name} on the topic {topic}")

    def partition(self, topic: str, number: int) -> Partition:
        """Return a partition of a topic that was checked. Raises UnknownTopicOrPartitionError."""
        found = self.broker.logs.get(topic, number)
        if found is None:
            raise UnknownTopicOrPartitionError(f"{topic} has no partition {number} here")
        return found


def check_code(code: int, message: str | None = None) -> None:
    """Raise the error of a code that an API answered."""
    if code:
        kind = error_for_code(int(code))
        if message:
            raise kind(message)
        raise kind(kind.__name__.removesuffix("Error"))
