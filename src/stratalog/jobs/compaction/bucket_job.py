"""One compaction of a bucket, identified by its job id. The ids of all its segments begin with that id.

A task whose executor dies leaves objects that the driver does not know. The job finds them by id and removes them at
its end (`remote.staging.sweep`). In case the driver dies too, a file for each topic names the running job, and the next
job removes what that one left:

    <url>/_publications/compact-<topic>.job     {"format": "stratalog-compaction", "version": 1, "job": <id>}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final
from uuid import UUID

from stratalog.errors import RemoteResourceNotFoundError, RemoteStorageError
from stratalog.remote.storage import ObjectStore, SegmentManifest
from stratalog.remote.transactions import DIRECTORY, finish_publications, is_of_job, sweep
from stratalog.util import random_uuid, uuid_from_base64, uuid_to_base64

_FORMAT: Final = "stratalog-compaction"
_VERSION: Final = 1

#: Ids are compared by their first 48 bits. Each job's are larger by at most 24 bits than all before it.
_HIGH_BITS: Final = 48
_LOW_BITS: Final = 128 - _HIGH_BITS
_STEP_BITS: Final = 24
#: Ids must not begin with '-' in base64, which encodes six bits of this value.
_DASH: Final = 62


class BucketJob:
    """A job on some topics. `begin` and `end` may be repeated after a crash."""

    def __init__(self, store: ObjectStore, topics: Sequence[str], job: UUID) -> None:
        self.id = job
        self.topics = sorted(set(topics))
        self._store = store
        self._earlier: dict[str, UUID] = {}

    def find_earlier(self) -> None:
        """Find unfinished earlier jobs. Raises RemoteStorageError."""
        for topic in self.topics:
            noted = _noted(self._store, topic)
            if noted is not None:
                self._earlier[topic] = noted

    def is_of_earlier(self, manifest: SegmentManifest) -> bool:
        """Return whether an unfinished earlier job made this segment."""
        job = self._earlier.get(manifest.topic)
        return job is not None and is_of_job(manifest.segment_id, job)

    def begin(self) -> None:
        """Remove what earlier jobs staged but did not publish, and record this one. Raises RemoteStorageError."""
        finish_publications(self._store)
        for topic, job in self._earlier.items():
            sweep(self._store, job, topic)
        note = {"format": _FORMAT, "version": _VERSION, "job": uuid_to_base64(self.id)}
        for topic in self.topics:
            self._store.put(_key(topic), json.dumps(note).encode())

    def sweep(self) -> None:
        """Remove what this job staged but did not publish. Raises RemoteStorageError."""
        finish_publications(self._store)
        for topic in self.topics:
            sweep(self._store, self.id, topic)

    def end(self) -> None:
        """Remove what is left once everything is published, and the record. Raises RemoteStorageError."""
        self.sweep()
        self._store.delete([_key(topic) for topic in self.topics])


def job_above(segments: Iterable[UUID]) -> UUID:
    """Return an id for a job whose segments get larger ids than these, if possible.

    Of two segments with the same offsets our broker reads the one with the larger id. Steps are small, which leaves
    room for many jobs.
    """
    drawn = random_uuid()
    most = max((each.int >> _LOW_BITS for each in segments), default=None)
    if most is None:
        return drawn
    step = 1 + (drawn.int >> (128 - _STEP_BITS))
    high = most + step
    if high >> (_HIGH_BITS - 6) == _DASH:
        high = ((_DASH + 1) << (_HIGH_BITS - 6)) + step
    if high >> _HIGH_BITS:
        return drawn
    return UUID(int=high << _LOW_BITS | drawn.int & ((1 << _LOW_BITS) - 1))


def _key(topic: str) -> str:
    return f"{DIRECTORY}/compact-{topic}.job"


def _noted(store: ObjectStore, topic: str) -> UUID | None:
    key = _key(topic)
    try:
        data = store.get(key)
    except RemoteResourceNotFoundError:
        return None
    try:
        document = json.loads(bytes(data))
        if document["format"] != _FORMAT or document["version"] != _VERSION:
            raise ValueError(f"format {document['format']}, version {document['version']}")
        return uuid_from_base64(document["job"])
    except (ValueError, KeyError, TypeError) as error:
        raise RemoteStorageError(
            f"{store.url}/{key} does not name the running compaction: {error}; use the release that wrote it, or "
            "delete it and let `stratalog tier repair` remove what was left"
        ) from error
