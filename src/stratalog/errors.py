"""The one exception tree.

A `KafkaError` carries the error code that is sent to clients (Kafka's `Errors`); everything else is internal and is
mapped to UNKNOWN_SERVER_ERROR if it ever reaches a client. A message names what was wrong, where, what was expected
and what to do.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Self


class StratalogError(Exception):
    """Root of every error that stratalog raises on purpose.

    The message is `where: reason`. Callers that name the place themselves use `reason` alone.
    """

    def __init__(self, reason: str = "", *, where: str = "") -> None:
        super().__init__(f"{where}: {reason}" if where else reason)
        self.reason = reason


class RecordError(NamedTuple):
    """The faulty record of a refused batch, counted from 0, and the reason."""

    batch_index: int
    message: str | None


_BY_CODE: dict[int, type[KafkaError]] = {}


class KafkaError(StratalogError):
    """An error with a place in Kafka's protocol: a class for each code, which its first line gives."""

    code: ClassVar[int] = -1
    #: The records that made a batch invalid. Empty when the batch as a whole is at fault.
    record_errors: Sequence[RecordError] = ()

    def __init_subclass__(cls, *, code: int | None = None) -> None:
        if code is not None:
            cls.code = code
            _BY_CODE.setdefault(code, cls)

    def about_records(self, errors: Sequence[RecordError]) -> Self:
        """Return this error, naming the records at fault."""
        self.record_errors = tuple(errors)
        return self


class UnknownServerError(KafkaError, code=-1): ...


class OffsetOutOfRangeError(KafkaError, code=1): ...


class CorruptRecordError(KafkaError, code=2):
    """CORRUPT_MESSAGE: bytes that are no valid batch (length, CRC, magic, framing)."""


class UnknownTopicOrPartitionError(KafkaError, code=3): ...


class LeaderNotAvailableError(KafkaError, code=5): ...


class NotLeaderOrFollowerError(KafkaError, code=6): ...


class RequestTimedOutError(KafkaError, code=7): ...


class StillLoadingError(RequestTimedOutError):
    """Nothing has been done, as code that does it is being loaded: the same works soon."""


class LargeBatchError(StillLoadingError):
    """Nothing has been done, as this thread serves many and the batch takes long: the same works on another thread."""


class ReplicaNotAvailableError(KafkaError, code=9): ...


class MessageTooLargeError(KafkaError, code=10): ...


class OffsetMetadataTooLargeError(KafkaError, code=12): ...


class CoordinatorLoadInProgressError(KafkaError, code=14): ...


class CoordinatorNotAvailableError(KafkaError, code=15): ...


class NotCoordinatorError(KafkaError, code=16): ...


class LogDirNotFoundError(KafkaError, code=57): ...


class InvalidTopicError(KafkaError, code=17): ...


class RecordListTooLargeError(KafkaError, code=18): ...


class NotEnoughReplicasError(KafkaError, code=19): ...


class NotEnoughReplicasAfterAppendError(KafkaError, code=20): ...


class InvalidRequiredAcksError(KafkaError, code=21): ...


class IllegalGenerationError(KafkaError, code=22): ...


class InconsistentGroupProtocolError(KafkaError, code=23): ...


class InvalidGroupIdError(KafkaError, code=24): ...


class UnknownMemberIdError(KafkaError, code=25): ...


class InvalidSessionTimeoutError(KafkaError, code=26): ...


class RebalanceInProgressError(KafkaError, code=27): ...


class TopicAuthorizationFailedError(KafkaError, code=29): ...


class GroupAuthorizationFailedError(KafkaError, code=30): ...


class ClusterAuthorizationFailedError(KafkaError, code=31): ...


class InvalidTimestampError(KafkaError, code=32): ...


class UnsupportedSaslMechanismError(KafkaError, code=33): ...


class IllegalSaslStateError(KafkaError, code=34): ...


class UnsupportedVersionError(KafkaError, code=35): ...


class TopicAlreadyExistsError(KafkaError, code=36): ...


class InvalidPartitionsError(KafkaError, code=37): ...


class InvalidReplicationFactorError(KafkaError, code=38): ...


class InvalidReplicaAssignmentError(KafkaError, code=39): ...


class InvalidConfigError(KafkaError, code=40): ...


class InvalidRequestError(KafkaError, code=42): ...


#: What Kafka says of an InvalidRequestError that has no message of its own.
INVALID_REQUEST_MESSAGE = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


class UnsupportedForMessageFormatError(KafkaError, code=43): ...


class PolicyViolationError(KafkaError, code=44): ...


class OutOfOrderSequenceError(KafkaError, code=45): ...


class DuplicateSequenceError(KafkaError, code=46): ...


class InvalidProducerEpochError(KafkaError, code=47): ...


class InvalidTxnStateError(KafkaError, code=48): ...


class InvalidProducerIdMappingError(KafkaError, code=49): ...


class InvalidTransactionTimeoutError(KafkaError, code=50): ...


class ConcurrentTransactionsError(KafkaError, code=51): ...


class TransactionCoordinatorFencedError(KafkaError, code=52): ...


class TransactionalIdAuthorizationFailedError(KafkaError, code=53): ...


class SecurityDisabledError(KafkaError, code=54): ...


class OperationNotAttemptedError(KafkaError, code=55): ...


class KafkaStorageError(KafkaError, code=56):
    """The log directory failed (disk full, EIO, damage that cannot be mended)."""


class ResourceShortageError(KafkaStorageError):
    """No file can be opened, as too many are open: nothing is wrong with any disk, and it may be tried again."""


def is_shortage(error: BaseException) -> bool:
    """Return whether an operation failed for want of a file descriptor, of the process or of the machine."""
    if isinstance(error, OSError):
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return isinstance(error, ResourceShortageError)


class SaslAuthenticationFailedError(KafkaError, code=58): ...


class DelegationTokenDisabledError(KafkaError, code=61): ...


class DelegationTokenNotFoundError(KafkaError, code=62): ...


class DelegationTokenOwnerMismatchError(KafkaError, code=63): ...


class DelegationTokenNotAllowedError(KafkaError, code=64): ...


class DelegationTokenAuthorizationFailedError(KafkaError, code=65): ...


class DelegationTokenExpiredError(KafkaError, code=66): ...


class InvalidPrincipalTypeError(KafkaError, code=67): ...


class NonEmptyGroupError(KafkaError, code=68): ...


class GroupIdNotFoundError(KafkaError, code=69): ...


class FetchSessionIdNotFoundError(KafkaError, code=70): ...


class InvalidFetchSessionEpochError(KafkaError, code=71): ...


class TopicDeletionDisabledError(KafkaError, code=73): ...


class FencedLeaderEpochError(KafkaError, code=74): ...


class UnknownLeaderEpochError(KafkaError, code=75): ...


class UnsupportedCompressionTypeError(KafkaError, code=76): ...


class OffsetNotAvailableError(KafkaError, code=78): ...


class FencedInstanceIdError(KafkaError, code=82): ...


class GroupSubscribedToTopicError(KafkaError, code=86): ...


class InvalidRecordError(KafkaError, code=87):
    """The batch is intact, but what it says is not allowed."""


class UndecodableRecordsError(KafkaError, code=-1):
    """A produced batch cannot be decompressed with its codec. Kafka answers UNKNOWN_SERVER_ERROR."""


class UnstableOffsetCommitError(KafkaError, code=88): ...


class ProducerFencedError(KafkaError, code=90): ...


class ResourceNotFoundError(KafkaError, code=91): ...


class DuplicateResourceError(KafkaError, code=92): ...


class UnacceptableCredentialError(KafkaError, code=93): ...


class InvalidUpdateVersionError(KafkaError, code=95): ...


class UnknownTopicIdError(KafkaError, code=100): ...


class InconsistentTopicIdError(KafkaError, code=103): ...


class TransactionalIdNotFoundError(KafkaError, code=105): ...


class FetchSessionTopicIdError(KafkaError, code=106): ...


class TransactionAbortableError(KafkaError, code=120): ...


class GroupMaxSizeReachedError(KafkaError, code=81): ...


class ThrottlingQuotaExceededError(KafkaError, code=89): ...


class OffsetMovedToTieredStorageError(KafkaError, code=109):
    """The offset that a replica fetched from its leader is in the remote tier only."""


class FencedMemberEpochError(KafkaError, code=110): ...


class UnreleasedInstanceIdError(KafkaError, code=111): ...


class UnsupportedAssignorError(KafkaError, code=112): ...


class StaleMemberEpochError(KafkaError, code=113): ...


class UnknownSubscriptionIdError(KafkaError, code=117): ...


class TelemetryTooLargeError(KafkaError, code=118): ...


class InvalidRecordStateError(KafkaError, code=121): ...


class ShareSessionNotFoundError(KafkaError, code=122): ...


class InvalidShareSessionEpochError(KafkaError, code=123): ...


class FencedStateEpochError(KafkaError, code=124): ...


class ShareSessionLimitReachedError(KafkaError, code=133): ...


class InvalidStreamsTopologyError(KafkaError, code=130): ...


class InvalidRegularExpressionError(KafkaError, code=128): ...


class RebootstrapRequiredError(KafkaError, code=129): ...


# --- internal: never on the wire under their own name -------------------------------------------------------------


class UsageError(StratalogError):
    """Wrong usage or an environment that cannot work (port in use, missing Java): one line, exit code 2."""


class DataDirError(StratalogError):
    """A data directory that cannot be used: unwritable, locked, another cluster's, another format version."""


class UnusableDataDirError(DataDirError):
    """A data directory that cannot be read or written, or whose identity is damaged.

    Other directories may still serve.
    """


class CorruptIndexError(StratalogError):
    """A derived index does not hold its invariants; it can be rebuilt from the log."""


class CorruptSnapshotError(StratalogError):
    """A producer snapshot is damaged; it can be rebuilt from the log."""


class CorruptCheckpointError(StratalogError):
    """A checkpoint file is damaged."""


class RemoteStorageError(StratalogError):
    """The object store refused or failed; trying the same again will not help."""


class RetriableRemoteStorageError(RemoteStorageError):
    """The object store failed in a way that may pass (timeout, 5xx, throttling)."""


class QueueFullError(RetriableRemoteStorageError):
    """More waits for the threads of the remote tier than may."""


class RemoteResourceNotFoundError(RemoteStorageError):
    """The object does not exist."""


class MissingBucketError(RemoteStorageError):
    """The bucket does not exist. Some stores make it at the first put."""


class DamagedOwnerError(RemoteStorageError):
    """The owner object of a bucket cannot be read. No broker may write there until an operator decides."""


class NotOwnerError(RemoteStorageError):
    """Another cluster owns the bucket, or it is not known whose it is; nothing is written or deleted there."""


class DamagedRemoteObjectError(RemoteStorageError):
    """The object store returned other bytes than were stored."""


class ReplacedRemoteObjectError(DamagedRemoteObjectError):
    """The object is another one than was stored: its size or entity tag has changed since."""


class ManifestFromTheFutureError(RemoteStorageError):
    """A manifest of a version that this release does not know; a later one wrote it."""


class CustomMetadataSizeLimitExceededError(StratalogError):
    """A storage plugin returned more custom metadata than `remote.log.metadata.custom.metadata.max.bytes`."""


def error_for_code(code: int) -> type[KafkaError]:
    """Return the class for a wire error code; `UnknownServerError` for one that has no class here."""
    return _BY_CODE.get(code, UnknownServerError)


def wire_code(error: BaseException) -> int:
    """Return the wire error code for any exception: its own, or UNKNOWN_SERVER_ERROR (-1)."""
    return error.code if isinstance(error, KafkaError) else UnknownServerError.code
