"""What can stop a write through brokers, beside the errors of brokers themselves."""

from __future__ import annotations

from stratalog.errors import StratalogError


class RefusedRecordsError(StratalogError):
    """A broker does not take a batch, and would not take it later either."""


class FencedWriterError(StratalogError):
    """Somebody else writes under this transactional id: another attempt of a task, or another run of the query."""


class LostTransactionError(StratalogError):
    """A batch was decided upon and cannot be committed whole any more."""
