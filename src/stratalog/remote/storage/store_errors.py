"""Convert errors of obstore: the class says whether a retry can help, the message what to do."""

from __future__ import annotations

import re

from stratalog.errors import (
    MissingBucketError,
    RemoteResourceNotFoundError,
    RemoteStorageError,
    RetriableRemoteStorageError,
)


class RangeBehindEndError(RemoteStorageError):
    """A range that begins at or after the end of its object. This is a result, not a failure."""


_STATUS = re.compile(r"status code: (\d{3})")
#: Of a response, or of one key in the response to a bulk deletion.
_CODE = re.compile(r"<Code>(\w+)</Code>|\(code: (\w+)\)")
_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound"})
_BUSY = frozenset({"InternalError", "SlowDown", "ServiceUnavailable", "RequestTimeout", "OperationAborted"})
_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired"})
_DENIED = {
    "InvalidAccessKeyId": "the access key is not known there; check the credentials",
    "SignatureDoesNotMatch": "the secret key is wrong; check the credentials",
    "AuthenticationFailed": "the account or its key is wrong, or this machine's clock is; check the credentials",
    "ExpiredToken": "the session token has expired; renew it",
}
_WRITES = frozenset({"put", "delete"})


def map_store_error(error: BaseException, operation: str, where: str) -> RemoteStorageError:  # noqa: C901
    """Convert an error of obstore: the class says whether a retry can help, the message is one line."""
    text = str(error)
    status = int(match[1]) if (match := _STATUS.search(text)) else 0
    code = (match[1] or match[2]) if (match := _CODE.search(text)) else ""
    kind = type(error).__name__
    where = f"{operation} {where}"
    if status == 416 or "StartTooLarge" in text or code == "InvalidRange":
        return RangeBehindEndError("the range begins after the end", where=where)
    missing = isinstance(error, FileNotFoundError) or kind == "NotFoundError"
    if code == "NoSuchUpload":
        return RetriableRemoteStorageError("the store has discarded the parts that were sent", where=where)
    if code in _NO_BUCKET or (missing and not code and operation in ("put", "list")):
        return MissingBucketError("the bucket does not exist; create it or correct the URL", where=where)
    if missing:
        return RemoteResourceNotFoundError("there is no such object", where=where)
    if code in _SKEWED:
        return RetriableRemoteStorageError(
            f"this machine's clock is too far from the store's; set the clock ({code})", where=where
        )
    if (
        status in (401, 403)
        or code in ("AccessDenied", *_DENIED)
        or kind in ("PermissionDeniedError", "UnauthenticatedError")
    ):
        return RemoteStorageError(_denied(operation, code) + (f" ({code})" if code else ""), where=where)
    if isinstance(error, PermissionError) or "os error 13" in text:
        return RemoteStorageError("permission is denied; check the owner and mode of the directory", where=where)
    if "os error 30" in text:
        return RemoteStorageError("the file system is mounted read-only; mount it for writing", where=where)
    if status in (408, 429) or status >= 500 or code in _BUSY:
        answer = " ".join(str(part) for part in (status, code) if part)
        return RetriableRemoteStorageError(f"the store answered {answer}", where=where)
    if "kind: Timeout" in text or "TimedOut" in text:
        return RetriableRemoteStorageError("the store did not answer in time", where=where)
    if "kind: Connect" in text:
        return RetriableRemoteStorageError("the store cannot be reached", where=where)
    if "HTTP error" in text:
        return RetriableRemoteStorageError("the connection to the store broke", where=where)
    if "os error 28" in text:
        return RetriableRemoteStorageError("no space is left on the device", where=where)
    if code and (message := _MESSAGE.search(text)):
        return RemoteStorageError(f"the store refused: {message[1].rstrip('.')} ({code})", where=where)
    return RemoteStorageError(first_line(text), where=where)


def _denied(operation: str, code: str) -> str:
    known = _DENIED.get(code)
    if known is not None:
        return known
    if operation in _WRITES:
        return "access is denied: this account may not write there, or the bucket is read-only; check its permissions"
    return "access is denied; check credentials and permissions of this account"


def first_line(text: str) -> str:
    """Return a long message of the store as one short line."""
    line = re.sub(r"\s+", " ", text.split("Debug source:")[0]).strip()
    return line[:300] or "failed without a message"
