"""The `ClusterMetadata` for the broker's APIs, from images."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from stratalog.broker.access import Acl
from stratalog.broker.cluster.access_rules import acl_of_record
from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import (
    BROKER_RESOURCE,
    EMPTY_IMAGE,
    METADATA_VERSION,
    TOPIC_RESOURCE,
    MetadataImage,
    TopicImage,
)
from stratalog.broker.metadata import FinalizedFeatures, Topic, TopicLookup
from stratalog.broker.quotas import QuotaEntity
from stratalog.errors import InvalidRequestError
from stratalog.wire.metadata_records import DelegationTokenRecord

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
#: Mechanisms by Kafka's number for them.
_MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class ImageMetadata(TopicLookup):
    """Follows the images by `take`, which belongs to one thread. Reads are thread-safe."""

    good_topic_defaults: Mapping[str, str] = _NOTHING

    def __init__(self, cluster_id: str, *, large_segments: bool = False) -> None:
        self.cluster_id = cluster_id
        #: From this broker's own switch, as released controllers use these levels for something other than KIP-1333.
        self.large_segments = large_segments
        #: The latest image.
        self.image: MetadataImage = EMPTY_IMAGE
        super().__init__()
        self.features = FinalizedFeatures(0, -1, _NOTHING_FINALIZED)

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply the next image and its changes."""
        self.image = image
        if "features" in delta.changes:
            others = {name: level for name, level in image.features.items() if name != METADATA_VERSION}
            self.features = FinalizedFeatures(image.metadata_version, image.offset, MappingProxyType(others))
        changed = {each.name for each in delta.changed_configs if each.type == TOPIC_RESOURCE}
        gone = {topic.name for topic_id in delta.deleted_topics if (topic := delta.image.topics.get(topic_id))}
        for name in gone:
            if self._topics.get(name) is not None and name not in image.topic_ids:
                self._topics.remove(name)
        changed |= gone & image.topic_ids.keys()
        changed |= {image.topics[topic_id].name for topic_id in delta.changed_partitions}
        for name in changed:
            topic = image.topic(name)
            if topic is not None:
                self._put(topic)

    def _put(self, topic: TopicImage) -> None:
        configs = self.image.config(TOPIC_RESOURCE, topic.name)
        found = Topic(topic.name, topic.id, len(topic.partitions), configs, 0)
        before = self._topics.get(topic.name)
        if before == found:
            return  # only the leader has changed, for example
        if before is not None and before.topic_id != found.topic_id:
            self._topics.remove(topic.name)
        self._topics.put(found)

    @property
    def metadata_version(self) -> int:
        return self.features.metadata_version

    def broker_configs(self, node_id: int | None) -> Mapping[str, str]:
        return self.image.config(BROKER_RESOURCE, "" if node_id is None else str(node_id))

    def resource_configs(self, resource_type: int, name: str) -> Mapping[str, str]:
        return self.image.config(resource_type, name)

    def configured_resources(self, resource_type: int) -> list[str]:
        return [each.name for each, configs in self.image.configs.items() if each.type == resource_type and configs]

    def acls(self) -> list[Acl]:
        return [acl_of_record(each) for each in self.image.acls.values()]

    def client_quotas(self) -> Mapping[QuotaEntity, Mapping[str, float]]:
        return self.image.quotas

    def credentials(self, kind: str) -> dict[str, str]:
        """Return SCRAM credentials or delegation tokens in the format of a single broker's store."""
        if kind == "delegation-token":
            return {token_id: _token_text(found) for token_id, found in self.image.tokens.items()}
        if kind != "scram":
            return {}
        return {
            f"{_MECHANISMS[mechanism]}/{user}": json.dumps(
                [
                    *(b64encode(part).decode() for part in (found.salt, found.stored_key, found.server_key)),
                    found.iterations,
                ]
            )
            for (mechanism, user), found in self.image.scram.items()
            if mechanism in _MECHANISMS
        }

    def change_credentials(self, kind: str, changes: Mapping[str, str | None]) -> None:  # noqa: ARG002
        raise InvalidRequestError("the controllers of the cluster change credentials")

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _token_text(found: DelegationTokenRecord) -> str:
    """Return a token in the format of a single broker's store; the log writes principals as `User:alice`."""
    return json.dumps(
        {
            "owner": found.owner.split(":", 1),
            "requester": found.requester.split(":", 1),
            "renewers": [each.split(":", 1) for each in found.renewers],
            "issued_ms": found.issue_timestamp,
            "expires_ms": found.expiration_timestamp,
            "max_ms": found.max_timestamp,
        }
    )


_NOTHING_FINALIZED: Final[Mapping[str, int]] = MappingProxyType({})
