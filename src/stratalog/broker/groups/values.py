"""Input and output values of the group state machine: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from typing import TypeAlias

from stratalog.errors import KafkaError
from stratalog.util import Clock

#: Identifies a waiting request. The machine only returns it.
Token: TypeAlias = Hashable

UNKNOWN_MEMBER_ID = ""
NO_GENERATION = -1
CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupKind(Enum):
    """The types of groups, by the `type_name` of theirs."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    STREAMS = "streams"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant on two clocks: the wall (ms since the epoch, for records) and a monotonic one (ms, for timers)."""

    wall_ms: int
    monotonic_ms: int

    @classmethod
    def of_clock(cls, clock: Clock) -> Moment:
        return cls(clock.now_ms(), round(clock.monotonic() * 1000))


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Broker settings for classic groups; times in milliseconds."""

    initial_rebalance_delay_ms: int = 3_000
    session_timeout_min_ms: int = 6_000
    session_timeout_max_ms: int = 1_800_000
    members_max: int = 2**31 - 1
    #: A member that does not know its id cannot send heartbeats: its join expires after this time.
    new_member_timeout_ms: int = 300_000


class Answer(IntEnum):
    """The error code of a response; the numbers are Kafka's."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82

    @classmethod
    def of_error(cls, error: KafkaError) -> Answer:
        """Return an error's code; UNKNOWN_SERVER_ERROR for one that members do not expect."""
        return next((answer for answer in cls if answer == error.code), cls.UNKNOWN_SERVER_ERROR)


class AgeSince(Enum):
    """The start of the retention of a group's committed offsets."""

    COMMIT = auto()
    GROUP_EMPTY = auto()
    NEVER = auto()


@dataclass(frozen=True, slots=True)
class Protocol:
    """An assignment strategy that a member offers, with its metadata."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup of any version.

    `new_member_id` is the id to issue if needed. `id_required`: a dynamic member without an id has to rejoin with the
    issued one (versions 4 and later). `can_skip_assignment`: the client supports that flag (version 9).
    """

    member_id: str
    new_member_id: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    id_required: bool = True
    can_skip_assignment: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A SyncGroup; `assignments` by member id, from the leader only.

    Protocol type and name are None before version 5.
    """

    member_id: str
    generation: int
    assignments: tuple[tuple[str, bytes], ...] = ()
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """A member to remove: by id, or with an empty id by instance id."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LeftMember:
    """The result for one `LeavingMember`."""

    member_id: str
    instance_id: str | None
    error: Answer


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as sent to its leader."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class JoinReply:
    """Answer a join. `members` only for the leader."""

    token: Token
    error: Answer
    member_id: str
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class SyncReply:
    token: Token
    error: Answer
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """One member in the stored metadata of its group; times in milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """The stored state of a group.

    `protocol_type` is "" for a group that never had members. `state_timestamp_ms` is when it entered its state (-1:
    unknown).
    """

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """Store this metadata, then call the machine's `stored` or `store_failed` with this same object."""

    metadata: GroupMetadata


Effect: TypeAlias = JoinReply | SyncReply | Store
Effects: TypeAlias = list[Effect]
