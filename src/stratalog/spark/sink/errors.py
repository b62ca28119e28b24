"""Errors of writes through brokers, besides those of brokers."""

from __future__ import annotations

from stratalog.errors import StratalogError


class RefusedRecordsError(StratalogError):
    """A broker does not take a batch, and would not take it later either."""


class FencedWriterError(StratalogError):
    """Another attempt of a task, or another run of the query, writes under this transactional id."""


class LostTransactionError(StratalogError):
    """A batch was decided and can no longer be committed as a whole."""
