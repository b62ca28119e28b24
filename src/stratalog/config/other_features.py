"""Features of Apache Kafka 4.4.0 besides `metadata.version`: their levels, and the release that each level came with.

Kafka's tools set all of them when a release is finalized (`kafka-features upgrade --release-version`), so their levels
are stored and reported (`FeatureVersion` of 4.4.0). 0 is what "not finalized" means.

Four of them mean something here. With `transaction.version` 2 clients of 4.x have their epoch raised with every
transaction and leave adding partitions to the broker (KIP-890). `group.version`, `share.version` and `streams.version`
1 bring groups of the consumer protocol, share groups and streams groups. A new data directory has these four at their
highest, and the others at 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TRANSACTION_VERSION: Final = "transaction.version"
#: The feature that brings groups of the new protocol (KIP-848).
GROUP_VERSION: Final = "group.version"
#: The feature that brings share groups (KIP-932).
SHARE_VERSION: Final = "share.version"
#: The feature that brings streams groups (KIP-1071).
STREAMS_VERSION: Final = "streams.version"

#: Feature -> level of `metadata.version` -> level of the feature from there on.
_LEVELS_OF_RELEASES: Final[Mapping[str, Mapping[int, int]]] = {
    "eligible.leader.replicas.version": {26: 1},
    GROUP_VERSION: {22: 1},
    "kraft.version": {21: 1},
    SHARE_VERSION: {28: 1, 31: 2},
    STREAMS_VERSION: {29: 1},
    TRANSACTION_VERSION: {24: 2},
}

#: The highest level of each; the lowest is 0.
OTHER_FEATURES: Final[Mapping[str, int]] = {name: max(levels.values()) for name, levels in _LEVELS_OF_RELEASES.items()}


def level_with(feature: str, metadata_version: int) -> int | None:
    """Return the level of a feature that comes with a level of `metadata.version`, or None for an unknown feature."""
    steps = _LEVELS_OF_RELEASES.get(feature)
    if steps is None:
        return None
    return max((level for since, level in steps.items() if since <= metadata_version), default=0)
