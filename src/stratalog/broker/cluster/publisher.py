"""Hands the cluster's metadata on to the parts of a broker, as Kafka's `BrokerMetadataPublisher` does."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import BROKER_RESOURCE, MetadataImage
from stratalog.broker.cluster.image_metadata import ImageMetadata

if TYPE_CHECKING:
    from stratalog.broker.quotas import ClientQuotas
    from stratalog.broker.security import ScramUsers
    from stratalog.broker.settings import BrokerSettings

logger = logging.getLogger(__name__)


class MetadataPublisher:
    """Called on the observer's thread with each delta. What is set on it follows from then on.

    No error of one part keeps the others from what is published: it is logged, and the next delta comes.
    """

    def __init__(self, metadata: ImageMetadata, node_id: int) -> None:
        self._metadata = metadata
        self._node_id = node_id
        self.scram: ScramUsers | None = None
        self.quotas: ClientQuotas | None = None
        self.settings: BrokerSettings | None = None

    def __call__(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._metadata.take(delta, image)
        try:
            if self.scram is not None and "scram" in delta.changes:
                self.scram.read()
            if self.quotas is not None and "quotas" in delta.changes:
                self.quotas.read()
            mine = {"", str(self._node_id)}
            if self.settings is not None and any(
                each.type == BROKER_RESOURCE and each.name in mine for each in delta.changed_configs
            ):
                self.settings.take_stored()
        except Exception:  # the metadata goes on; what is left out comes with the next change
            logger.exception("What the cluster's metadata configures could not be put in force")
