"""Build images from committed batches of the metadata log, and publish them.

As in Kafka's `MetadataLoader` and `MetadataBatchLoader`, records between Begin- and EndTransactionRecord are applied
together, nothing is published before the log has been caught up with once, and the first publication is the whole
image.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.image import EMPTY_IMAGE, MetadataImage
from stratalog.broker.cluster.metadata_batches import MetadataBatch
from stratalog.errors import CorruptRecordError
from stratalog.wire.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FramedRecord,
)

logger = logging.getLogger(__name__)

#: Called on the loader's thread with the changes, and the image after them.
Publisher = Callable[[MetadataDelta, MetadataImage], None]

_NO_OFFSET: Final = -1


class ImageLoader:
    """Belongs to one thread. Any thread may read `image`, `last_applied` and `published_offset`."""

    def __init__(self, publish: Publisher) -> None:
        self._publish = publish
        #: The latest image; it is not published before the first catch-up.
        self.image: MetadataImage = EMPTY_IMAGE
        #: Offset of the latest image whose publication has ended. The controller unfences and lets go by it.
        self.published_offset = _NO_OFFSET
        #: Offset of the last loaded batch, including those of an open transaction.
        self.last_applied = _NO_OFFSET
        self._in_transaction: list[FramedRecord] | None = None
        self.is_caught_up = False

    def load_snapshot(self, records: Iterable[FramedRecord], *, end_offset: int, epoch: int) -> None:
        """Replace the image by that of a snapshot. After the first catch-up, publishes how they differ.

        What the snapshot lacks was deleted by records that this broker has missed.
        """
        before = self.image
        delta = MetadataDelta(EMPTY_IMAGE)
        for each in records:
            delta.replay(each.record)
        self.image = delta.apply(end_offset - 1, epoch)
        self.last_applied = end_offset - 1
        self._in_transaction = None
        if self.is_caught_up:
            self._publish_image(MetadataDelta.between(before, self.image), always=True)

    def load(self, batch: MetadataBatch) -> None:
        """Apply the next committed batch. Raises CorruptRecordError, with the offset, for one that does not fit."""
        delta = MetadataDelta(self.image)
        try:
            for each in batch.records:
                self._replay(delta, each)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"metadata log, batch at offset {batch.base_offset}: {error}") from error
        self.last_applied = batch.last_offset
        if self._in_transaction is not None and not delta.changes:
            return  # the image stays at the offset before the transaction
        self.image = delta.apply(batch.last_offset, batch.epoch)
        if self.is_caught_up:
            self._publish_image(delta)

    def caught_up(self) -> None:
        """Publish the whole image, once: all committed batches have been loaded."""
        if not self.is_caught_up:
            self.is_caught_up = True
            logger.info("Caught up with the metadata log at offset %d", self.last_applied)
            self._publish_image(MetadataDelta.of_all(self.image), always=True)

    def _publish_image(self, delta: MetadataDelta, *, always: bool = False) -> None:
        """Publish the image. Without changes in `delta` there is nothing to publish, unless `always`."""
        image = self.image
        if always or delta.changes:
            self._publish(delta, image)
        self.published_offset = image.offset

    def _replay(self, delta: MetadataDelta, framed: FramedRecord) -> None:
        record = framed.record
        if isinstance(record, BeginTransactionRecord):
            if self._in_transaction is not None:
                raise CorruptRecordError("a transaction begins within another")
            self._in_transaction = []
        elif isinstance(record, EndTransactionRecord | AbortTransactionRecord):
            if self._in_transaction is None:
                raise CorruptRecordError("a transaction ends that did not begin")
            whole, self._in_transaction = self._in_transaction, None
            if isinstance(record, EndTransactionRecord):
                for each in whole:
                    delta.replay(each.record)
        elif self._in_transaction is not None:
            self._in_transaction.append(framed)
        else:
            delta.replay(record)
