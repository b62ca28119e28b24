"""Kafka's UUIDs: 128 random bits, spelled as 22 characters of URL-safe base64 without padding."""

from __future__ import annotations

import base64
import binascii
import uuid
from functools import lru_cache

ZERO_UUID = uuid.UUID(int=0)
METADATA_TOPIC_UUID = uuid.UUID(int=1)


def random_uuid() -> uuid.UUID:
    """Return a fresh random UUID; never a reserved one, and never one whose spelling begins with '-' (as Kafka's)."""
    while True:
        candidate = uuid.uuid4()
        if candidate not in (ZERO_UUID, METADATA_TOPIC_UUID) and not uuid_to_base64(candidate).startswith("-"):
            return candidate


#: Spellings that are kept: the ids of a topic or segment come many times in a row, in the keys of its objects.
_KEPT = 4096


@lru_cache(_KEPT)
def uuid_to_base64(value: uuid.UUID) -> str:
    """Kafka's spelling of a UUID."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


@lru_cache(_KEPT)
def uuid_from_base64(text: str) -> uuid.UUID:
    """Parse Kafka's spelling; ValueError names what is wrong."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"'{text}' is not a base64 UUID: {error}") from error
    if len(raw) != 16:
        raise ValueError(f"'{text}' decodes to {len(raw)} bytes; a UUID has 16")
    return uuid.UUID(bytes=raw)
