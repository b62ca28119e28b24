"""One member of a classic group, and the parser of its subscription."""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass

from stratalog.broker.groups.values import MemberMetadata, Protocol, Token


@dataclass(slots=True)
class Member:
    """A joined member. `session_deadline_ms` is on the monotonic clock; timeouts are in milliseconds.

    At most one of `awaiting_join` and `awaiting_sync` is set: the token of the parked request.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    session_deadline_ms: int
    assignment: bytes = b""
    awaiting_join: Token | None = None
    awaiting_sync: Token | None = None
    #: It joined under a new id and has not seen a generation yet.
    is_new: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol; b"" if it does not offer it."""
        for offered in self.protocols:
            if offered.name == protocol:
                return offered.metadata
        return b""

    def vote(self, candidates: Collection[str]) -> str:
        """Return the first of its protocols that all members share."""
        return next(offered.name for offered in self.protocols if offered.name in candidates)

    @property
    def outlives_session(self) -> bool:
        """Whether a missed heartbeat is excused, because the coordinator makes the member wait."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def stored(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=assignment,
        )


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics in a consumer's subscription, or None if the bytes are no subscription.

    Layout in all known versions: version int16, then topics as an int32 count of strings, each an int16 length and
    UTF-8 bytes (ConsumerProtocolSubscription).
    """
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        position = 6
        topics = set()
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            name = metadata[position + 2 : position + 2 + length]
            if length < 0 or len(name) != length:
                return None
            topics.add(name.decode())
            position += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
