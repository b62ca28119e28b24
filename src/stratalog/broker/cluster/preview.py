"""A member that holds no partitions yet says so when the cluster gives it some."""

from __future__ import annotations

import logging

from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import MetadataImage
from stratalog.broker.cluster.loader import Publisher
from stratalog.broker.cluster.local_changes import local_changes

logger = logging.getLogger(__name__)


def warn_of_replicas(node_id: int) -> Publisher:
    """Return a publisher that warns of partitions which the metadata assigns to broker `node_id`."""

    def warn(delta: MetadataDelta, image: MetadataImage) -> None:
        changes = local_changes(delta, image, node_id)
        for each in sorted(changes.directories, key=str):
            logger.warning(
                "Partition %s-%d has a replica on this broker, which holds no partitions yet: it will not be in sync."
                " Move it with kafka-reassign-partitions.sh",
                each.topic,
                each.partition,
            )

    return warn
