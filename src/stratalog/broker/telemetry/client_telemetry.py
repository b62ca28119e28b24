"""Client metrics subscriptions: the requested metrics, their interval, and which pushes are accepted, as in Kafka.

A client is identified by its instance id, with the subscription that it last got. It is forgotten when its connection
ends, or after three intervals without a request. Belongs to the loop's thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from stratalog.broker.metadata import CLIENT_METRICS
from stratalog.broker.telemetry.pushed_values import LastPushes
from stratalog.config import ALL_METRICS, DEFAULT_INTERVAL_MS, ClientMetricsConfig
from stratalog.errors import (
    InvalidConfigError,
    InvalidRequestError,
    KafkaError,
    TelemetryTooLargeError,
    ThrottlingQuotaExceededError,
    UnknownSubscriptionIdError,
    UnsupportedCompressionTypeError,
)
from stratalog.records import Codec
from stratalog.util import crc32c, random_uuid, uuid_to_base64

if TYPE_CHECKING:
    from stratalog.broker.metadata import ClusterMetadata
    from stratalog.broker.security import Peer
    from stratalog.util import Clock

#: Limit of instances; the least recently seen one is forgotten first.
_INSTANCES_MAX = 16_384
_FORGOTTEN_AFTER_MS = 60_000
_RESERVED = (UUID(int=0), UUID(int=1))


@dataclass(frozen=True, slots=True)
class TelemetryRequest:
    """The metrics requested from a client, and their interval."""

    instance_id: UUID
    subscription_id: int
    interval_ms: int
    metrics: tuple[str, ...]


class _Instance:
    """One known client. Times are of the wall clock, in milliseconds."""

    __slots__ = ("got_ms", "is_terminating", "peer", "pushed_ms", "seen_ms", "subscription", "version")

    def __init__(self, peer: Peer, subscription: TelemetryRequest, version: int):
        self.peer = peer
        self.subscription = subscription
        self.version = version
        self.seen_ms = 0
        self.got_ms = 0
        self.pushed_ms = 0
        self.is_terminating = False

    def is_forgotten(self, now_ms: int) -> bool:
        kept_ms = max(_FORGOTTEN_AFTER_MS, 3 * self.subscription.interval_ms)
        return self.peer.is_gone or now_ms - self.seen_ms >= kept_ms

    def may_get(self, now_ms: int) -> bool:
        if now_ms - max(self.got_ms, self.pushed_ms) < self.subscription.interval_ms:
            return False
        self.got_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Record a push, unless it is too early. The first one after a subscription may be: clients add jitter."""
        if self.got_ms <= self.pushed_ms and now_ms - self.pushed_ms < self.subscription.interval_ms:
            return False
        self.pushed_ms = now_ms
        return True


class ClientTelemetry:
    """The instances of clients, and their last pushes."""

    def __init__(self, metadata: ClusterMetadata, clock: Clock, size_max: int) -> None:
        self._metadata = metadata
        self._clock = clock
        self.size_max = size_max
        self.values = LastPushes()
        self._instances: OrderedDict[UUID, _Instance] = OrderedDict()
        self._stored: Mapping[str, Mapping[str, str]] = {}
        self._subscriptions: list[ClientMetricsConfig] = []
        self._version = 0

    def get(self, instance_id: UUID | None, client_id: str | None, peer: Peer) -> TelemetryRequest:
        """Return a client's subscription. ThrottlingQuotaExceededError when the request is too early."""
        if instance_id is None or not instance_id.int:
            instance_id = random_uuid()
        instance, now_ms = self._instance(instance_id, client_id, peer)
        if not instance.may_get(now_ms):
            raise ThrottlingQuotaExceededError
        return instance.subscription

    def check_push(
        self,
        instance_id: UUID | None,
        subscription_id: int,
        codec: int,
        size: int,
        *,
        is_terminating: bool,
        client_id: str | None,
        peer: Peer,
    ) -> None:
        """Raise Kafka's error for a push that is not accepted. A terminating client may push once more."""
        if instance_id is None or instance_id in _RESERVED:
            raise InvalidRequestError
        instance, now_ms = self._instance(instance_id, client_id, peer)
        try:
            if instance.is_terminating:
                raise InvalidRequestError
            if not instance.may_push(now_ms) and not is_terminating:
                raise ThrottlingQuotaExceededError
            if subscription_id != instance.subscription.subscription_id:
                raise UnknownSubscriptionIdError
            if codec not in set(Codec):
                raise UnsupportedCompressionTypeError
            if size > self.size_max:
                raise TelemetryTooLargeError
        finally:
            instance.is_terminating = is_terminating

    def forget_gone(self) -> None:
        """Forget clients whose connections have ended, with their pushes."""
        now_ms = self._clock.now_ms()
        for instance_id in [each for each, instance in self._instances.items() if instance.is_forgotten(now_ms)]:
            self._forget(instance_id)

    def _forget(self, instance_id: UUID) -> None:
        del self._instances[instance_id]
        self.values.forget(instance_id)

    def _instance(self, instance_id: UUID, client_id: str | None, peer: Peer) -> tuple[_Instance, int]:
        now_ms = self._clock.now_ms()
        self._look()
        instance = self._instances.get(instance_id)
        if instance is not None and instance.is_forgotten(now_ms):
            self._forget(instance_id)
            instance = None
        if instance is None or instance.version < self._version:
            subscription = self._subscription(instance_id, _attributes(instance_id, client_id, peer))
            instance = self._instances[instance_id] = _Instance(peer, subscription, self._version)
            if len(self._instances) > _INSTANCES_MAX:
                self._forget(next(iter(self._instances)))
        instance.seen_ms = now_ms
        self._instances.move_to_end(instance_id)
        return instance, now_ms

    def _look(self) -> None:
        """Apply changed subscriptions."""
        names = self._metadata.configured_resources(CLIENT_METRICS)
        stored = {name: self._metadata.resource_configs(CLIENT_METRICS, name) for name in names}
        if stored == self._stored:
            return
        self._stored, self._version = stored, self._version + 1
        self._subscriptions = []
        for configs in stored.values():
            try:
                self._subscriptions.append(ClientMetricsConfig.from_properties(configs))
            except (KafkaError, InvalidConfigError):
                continue  # of a newer version: ignore what cannot be parsed

    def _subscription(self, instance_id: UUID, attributes: Mapping[str, str | None]) -> TelemetryRequest:
        found = [each for each in self._subscriptions if each.matches(attributes)]
        metrics = sorted({metric for each in found for metric in each.metrics})
        if ALL_METRICS in metrics:
            metrics = [ALL_METRICS]
        interval_ms = min([DEFAULT_INTERVAL_MS, *(each.interval_ms for each in found)])
        number = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode()) ^ _java_hash(instance_id)
        return TelemetryRequest(instance_id, (number ^ 2**31) - 2**31, interval_ms, tuple(metrics))


def _java_hash(instance_id: UUID) -> int:
    """Return Java's hash code of the id, unsigned."""
    folded = instance_id.int >> 64 ^ instance_id.int & 2**64 - 1
    return (folded >> 32 ^ folded) & 2**32 - 1


def _attributes(instance_id: UUID, client_id: str | None, peer: Peer) -> dict[str, str | None]:
    name, version = peer.software
    return {
        "client_instance_id": uuid_to_base64(instance_id),
        "client_id": client_id,
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": peer.client_host,
        "client_source_port": None if peer.client_port is None else str(peer.client_port),
    }
