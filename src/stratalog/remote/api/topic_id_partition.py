"""A partition and the id of its topic: all that a broker without a remote tier needs of this package."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from stratalog.util import uuid_to_base64


@dataclass(frozen=True, slots=True, order=True)
class TopicIdPartition:
    """A partition of a topic with a given id. The id tells a topic from a later one of the same name."""

    topic_id: UUID
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{uuid_to_base64(self.topic_id)}:{self.topic}-{self.partition}"
