"""The APIs of a broker in a cluster that differ from those of a single broker.

Metadata, DescribeCluster, DescribeTopicPartitions and FindCoordinator are answered from the image. Changes of the
cluster are forwarded to the controllers unchanged (KIP-590), in the versions that they support; those of configs
without the parts that are this broker's own.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from stratalog.broker.cluster.answers import ClusterAnswers, coordinator_topic
from stratalog.broker.cluster.client_topics import ClientTopics
from stratalog.broker.cluster.config_requests import ConfigRequests
from stratalog.broker.cluster.failed_requests import failed_response
from stratalog.broker.cluster.forwarding import FORWARDED, Forwarder
from stratalog.broker.cluster.image_metadata import ImageMetadata
from stratalog.broker.security import Principal, may_ask_for_tokens
from stratalog.broker.server import Api, ApiKey, Caller, Chunk, Deferred, Registry, RequestContext
from stratalog.broker.topics import is_topic_name
from stratalog.errors import (
    DelegationTokenNotAllowedError,
    KafkaError,
    RequestTimedOutError,
    StratalogError,
    UnknownServerError,
    UnsupportedVersionError,
    UsageError,
)
from stratalog.wire import (
    make_message,
    read_client_id,
    read_request,
    request_class,
    response_class,
    skip_tagged_fields,
    write_message,
)

logger = logging.getLogger(__name__)

_SIZE: Final = struct.Struct(">i")
#: API, version and correlation id of a request.
_HEAD: Final = struct.Struct(">hhi")
_CORRELATION: Final = struct.Struct(">i")
#: Requests that clients with a token, and anonymous ones, may not send; with the times in their responses.
_REFUSED_TOKEN: Final = {
    ApiKey.CREATE_DELEGATION_TOKEN: ("issue_timestamp", "expiry_timestamp", "max_timestamp"),
    ApiKey.RENEW_DELEGATION_TOKEN: ("expiry_timestamp",),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ("expiry_timestamp",),
}
_REQUESTER_FROM: Final = 3
#: Requests whose parts for this broker are not forwarded.
_PARTLY_OWN: Final = (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
#: No version: forwarded requests are not parsed.
_NEVER: Final = 1 << 15

Answer = Callable[[ClusterAnswers, int, Any], Any]


class ClusterApis:
    """The APIs of a broker in a cluster. Belongs to the loop's thread, except `close`."""

    def __init__(self, metadata: ImageMetadata, forwarder: Forwarder, node_id: int) -> None:
        self._metadata = metadata
        self._forwarder = forwarder
        self._node_id = node_id
        self.served = Registry()
        # The channel to the controller has one request at a time.
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="stratalog-forwarder")
        self.client_topics = ClientTopics(forwarder, self._threads)
        self._configs = ConfigRequests(forwarder, self._threads)

    def close(self) -> None:
        """Stop forwarding, and close the connection to the controller."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._forwarder.close()

    def apis(self, registry: Registry) -> Registry:
        """Return the APIs of the broker, given those of a single broker. Asks the controller; may block."""
        served = Registry(registry)
        for key in FORWARDED:
            served.pop(int(key), None)
            try:
                low, high = self._forwarder.versions(key)
            except UsageError as error:
                logger.warning("%s is not available: %s", key.message, error)
                continue
            if key in _PARTLY_OWN:
                own = registry[key]
                low, high = max(low, own.min_version), min(high, own.max_version)
                served.add(Api(key, low, high, low, handler=self._configs.answer, checks_access=True))
            else:
                served.add(Api(key, low, high, low, frames=self._forwarded, flexible_from=_NEVER))
        for key, handler in (
            (ApiKey.METADATA, self._answer_metadata),
            (ApiKey.FIND_COORDINATOR, self._find_coordinator),
            (ApiKey.DESCRIBE_CLUSTER, self._describe_cluster),
            (ApiKey.DESCRIBE_TOPIC_PARTITIONS, self._describe_topic_partitions),
        ):
            own = registry[key]
            served[key] = Api(
                key, own.min_version, own.max_version, own.advertised_min, handler=handler, on_error=own.on_error
            )
        self.served = served
        return served

    def _answers(self, ctx: RequestContext) -> ClusterAnswers:
        return ClusterAnswers(
            image=self._metadata.image,
            cluster_id=self._metadata.cluster_id,
            node_id=self._node_id,
            listener=ctx.peer.listener.name,
        )

    def _describe_cluster(self, ctx: RequestContext, request: Any) -> Any:
        return self._answers(ctx).describe_cluster(ctx.version, request)

    def _describe_topic_partitions(self, ctx: RequestContext, request: Any) -> Any:
        return self._answers(ctx).describe_topic_partitions(request)

    def _answer_metadata(self, ctx: RequestContext, request: Any) -> Any:
        config = ctx.broker.config
        if getattr(request, "allow_auto_topic_creation", True) and config["auto.create.topics.enable"]:
            self.client_topics.begin(ctx, self._to_create(request))
        # Topics in creation are unknown in the response, as in Kafka: clients retry.
        return self._answers(ctx).metadata(ctx.version, request)

    def _to_create(self, request: Any) -> Iterator[str]:
        for each in request.topics or ():
            name = each.name if getattr(each, "topic_id", None) is None else None
            if name and self._metadata.topic(name) is None and is_topic_name(name):
                yield name

    def _find_coordinator(self, ctx: RequestContext, request: Any) -> Any:
        topic = coordinator_topic(ctx.version, request)
        if topic is not None and self._metadata.topic(topic) is None:
            ctx.broker.coordinator_logs[topic].begin_creation()
        # Answered from the image at once, as in Kafka: clients ask again until the topic is there.
        return self._answers(ctx).find_coordinator(ctx.version, request)

    def _forwarded(self, caller: Caller) -> _Forwarded:
        return _Forwarded(caller, self._forwarder, self._threads)


class _Forwarded:
    """The forwarded requests of one connection."""

    template = None
    second_name = ""

    def __init__(self, caller: Caller, forwarder: Forwarder, threads: ThreadPoolExecutor) -> None:
        self._caller = caller
        self._forwarder = forwarder
        self._threads = threads

    def answer(
        self,
        version: int,
        correlation_id: int,
        frame: memoryview,
        position: int,  # noqa: ARG002
    ) -> Sequence[Chunk] | Deferred:
        peer = self._caller.peer
        key = int.from_bytes(frame[:2], "big")
        if key in _REFUSED_TOKEN and not may_ask_for_tokens(peer):
            return (refused_token_request(ApiKey(key), version, correlation_id, peer.principal),)
        loop = self._caller.broker.loop
        forward = partial(self._forwarder.forward, by_token=peer.by_token)
        copy = bytes(frame)
        future = loop.run_in_executor(self._threads, forward, copy, peer.principal, peer.client_host)
        return _PendingForward(self._caller, future, copy)


def refused_token_request(key: ApiKey, version: int, correlation_id: int, asker: Principal) -> bytes:
    """Return the framed response to a client that may not create or change tokens.

    As in Kafka, the broker checks this: the controllers do not know the client's listener.
    """
    fields: dict[str, Any] = dict.fromkeys(_REFUSED_TOKEN[key], -1)
    if key is ApiKey.CREATE_DELEGATION_TOKEN:
        fields |= {"principal_type": asker.kind, "principal_name": asker.name}
        if version >= _REQUESTER_FROM:
            fields |= {"token_requester_principal_type": asker.kind, "token_requester_principal_name": asker.name}
    fields["error_code"] = DelegationTokenNotAllowedError.code
    return framed(key, version, correlation_id, make_message(response_class(key, version), fields))


class _PendingForward(Deferred):
    """A forwarded request. If its client disconnects, only the response is dropped."""

    __slots__ = ("_caller", "_over", "_request")

    def __init__(self, caller: Caller, future: asyncio.Future[bytes], request: bytes) -> None:
        self._caller = caller
        self._request = request
        self._over = False
        future.add_done_callback(self._done)

    def cancel(self) -> None:
        self._over = True

    def _done(self, future: asyncio.Future[bytes]) -> None:
        if future.cancelled() or self._over:
            if not future.cancelled():
                future.exception()
            return
        try:
            answer = future.result()
        except UnsupportedVersionError as error:  # another controller: the client has to query its versions
            self._caller.reject(f"a request for the controller was not answered: {error}")
        except StratalogError as error:
            logger.warning("A request for the controller was not answered: %s", error)
            self._fail(error if isinstance(error, RequestTimedOutError) else UnknownServerError(str(error)))
        else:
            self._caller.respond((_SIZE.pack(len(answer)) + answer,))

    def _fail(self, error: KafkaError) -> None:
        frame = memoryview(self._request)
        number, version, correlation_id = _HEAD.unpack_from(frame)
        key = ApiKey(number)
        try:
            _, position = read_client_id(frame)
            if request_class(key, version).__flexible__:
                position = skip_tagged_fields(frame, position)
            request = read_request(key, version, frame, position)
        except Exception as unreadable:  # noqa: BLE001
            self._caller.reject(f"{key.message} v{version} request cannot be read: {unreadable}")
            return
        self._caller.respond((framed(key, version, correlation_id, failed_response(key, version, request, error)),))


def framed(key: ApiKey, version: int, correlation_id: int, response: Any) -> bytes:
    """Return a response with its size and header."""
    header = _CORRELATION.pack(correlation_id) + (b"\0" if response_class(key, version).__flexible__ else b"")
    body = header + write_message(response)
    return _SIZE.pack(len(body)) + body
