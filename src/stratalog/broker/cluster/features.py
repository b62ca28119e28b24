"""Features in a broker's registration, and checks of clusters that it cannot join.

Registering a feature is a promise: the controller places coordinators and finalizes features by it. So only implemented
features are registered, and a cluster that has finalized others is refused here, in one line, before the registration.
(The controller would only return UNSUPPORTED_VERSION.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from stratalog.broker.cluster.image import METADATA_VERSION, TOPIC_RESOURCE, MetadataImage
from stratalog.broker.cluster.registrations import BrokerRegistration
from stratalog.broker.metadata import is_tiered
from stratalog.engine.tiering import NEVER_TIERED
from stratalog.errors import UsageError

#: Lowest and highest level of each feature.
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, 33),
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 2),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}

#: Not one of Kafka's: the broker supports segments over 2 GiB (KIP-1333). Controllers store it, but never finalize it.
LARGE_SEGMENTS_FEATURE: Final = "stratalog.large.segments"

#: Maximum of topic names in a message.
_NAMED: Final = 3


def claimed_features(*, large_segments: bool) -> Mapping[str, tuple[int, int]]:
    return {**SUPPORTED_FEATURES, LARGE_SEGMENTS_FEATURE: (0, 1)} if large_segments else SUPPORTED_FEATURES


def brokers_without_large_segments(image: MetadataImage, topic: str) -> list[int]:
    """Return the brokers with a replica of a topic that have not registered segments over 2 GiB, sorted."""
    known = image.topic(topic)
    if known is None:
        return []
    holders = {broker for partition in known.partitions.values() for broker in partition.replicas}
    return sorted(broker for broker in holders if not _takes_large_segments(image.brokers.get(broker)))


def _takes_large_segments(broker: BrokerRegistration | None) -> bool:
    return broker is not None and broker.features.get(LARGE_SEGMENTS_FEATURE, (0, 0))[1] >= 1


def refuse_cluster(image: MetadataImage, *, kraft_version: int, node_id: int, is_tiering: bool = False) -> None:
    """Raise UsageError for a cluster that this release cannot join, with all causes and what to do."""
    lowered = lowered_features({**image.features, "kraft.version": kraft_version})
    if lowered:
        have = ", ".join(f"{name} at {level} ({_range(name)} is supported)" for name, (level, _) in lowered.items())
        options = " ".join(f"--feature {name}={to}" for name, (_, to) in lowered.items())
        raise UsageError(
            f"this broker cannot join the cluster, which has finalized {have}. To let it in: kafka-features.sh"
            f" --bootstrap-server HOST:PORT downgrade {options}; or give kafka-storage.sh format the same options"
        )
    tiered = [] if is_tiering else _tiered_topics(image, node_id)
    if tiered:
        shown = ", ".join(tiered[:_NAMED]) + (f" and {len(tiered) - _NAMED} more" if len(tiered) > _NAMED else "")
        raise UsageError(
            f"this broker cannot join the cluster, which has assigned it replicas of tiered topics: {shown}. It has"
            " no remote tier: set remote.log.storage.system.enable=true and stratalog.remote.url, or move them to other"
            " brokers with kafka-reassign-partitions.sh"
        )


def _tiered_topics(image: MetadataImage, node_id: int) -> list[str]:
    """Return the tiered topics with a replica on the broker, sorted."""
    return sorted(
        topic.name
        for topic in image.topics.values()
        if topic.name not in NEVER_TIERED
        and is_tiered(image.config(TOPIC_RESOURCE, topic.name))
        and any(node_id in partition.replicas for partition in topic.partitions.values())
    )


def lowered_features(levels: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Return features at a level that this release does not support, with the level and the nearest supported one."""
    return {
        name: (level, _nearest(name, level)) for name, level in sorted(levels.items()) if not _is_supported(name, level)
    }


def _is_supported(name: str, level: int) -> bool:
    low, high = SUPPORTED_FEATURES.get(name, (0, 0))
    return low <= level <= high or level == 0


def _range(name: str) -> str:
    low, high = SUPPORTED_FEATURES.get(name, (0, 0))
    return "no level" if high == 0 else f"{low} to {high}"


def _nearest(name: str, level: int) -> int:
    low, high = SUPPORTED_FEATURES.get(name, (0, 0))
    return max(low, min(level, high))
