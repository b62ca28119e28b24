"""Choose a topic where several have one name: of several clusters, or deleted and created again. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from uuid import UUID

from stratalog.errors import UsageError
from stratalog.remote.storage import SegmentManifest
from stratalog.util import uuid_to_base64


def choose_topic_ids(
    manifests: Iterable[SegmentManifest], noted: Mapping[str, Mapping[UUID, str]], asked: Collection[UUID]
) -> dict[str, UUID]:
    """Return the one id of each topic: the one `noted` by directories or brokers, else that of its segments.

    Raises UsageError, with all candidates, if there are several, or none of those `asked` for.
    """
    segments: dict[str, dict[UUID, list[SegmentManifest]]] = {}
    for each in manifests:
        segments.setdefault(each.topic, {}).setdefault(each.topic_id, []).append(each)
    found: dict[str, UUID] = {}
    there = {each for ids in (*noted.values(), *segments.values()) for each in ids}
    for topic in sorted(noted.keys() | segments.keys()):
        in_bucket, in_metadata = segments.get(topic, {}), noted.get(topic, {})
        candidates = in_bucket.keys() | in_metadata.keys()
        meant = candidates & set(asked) or set(in_metadata or in_bucket)
        is_nowhere = bool(set(asked) - there) and not candidates & set(asked)
        if len(meant) > 1 or is_nowhere:
            listed = "; ".join(
                f"{uuid_to_base64(each)}: {_what(in_metadata.get(each), in_bucket.get(each, []))}"
                for each in sorted(candidates, key=uuid_to_base64)
            )
            problem = (
                f"option topicId: no topic {topic} has the id {', '.join(map(uuid_to_base64, set(asked) - there))}"
                if is_nowhere
                else f"several topics have the name {topic}"
            )
            raise UsageError(
                f"{problem} ({listed}); option topicId says which one to read (--topic-id on the command line)"
            )
        if meant:
            found[topic] = meant.pop()
    return found


def _what(where: str | None, segments: Collection[SegmentManifest]) -> str:
    parts = [] if where is None else [where]
    if segments:
        partitions = len({each.partition for each in segments})
        newest = datetime.fromtimestamp(max(each.event_timestamp for each in segments) / 1000, UTC)
        parts.append(
            f"{len(segments)} remote segments of {partitions} partitions, the newest of {newest:%Y-%m-%d %H:%M} UTC"
        )
    return ", ".join(parts)


def of_topic_ids(
    manifests: Iterable[SegmentManifest], topic_ids: Mapping[str, UUID]
) -> dict[tuple[str, int], list[SegmentManifest]]:
    """Manifests by partition, those of these ids."""
    found: dict[tuple[str, int], list[SegmentManifest]] = {}
    for each in manifests:
        if each.topic_id == topic_ids.get(each.topic):
            found.setdefault((each.topic, each.partition), []).append(each)
    return found
