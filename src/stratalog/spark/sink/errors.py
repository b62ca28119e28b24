"""Errors of writes through brokers, besides those of brokers."""

from __future__ import annotations

from stratalog.errors import StratalogError


class RefusedRecordsError(StratalogError):
    """A broker refuses a batch, and would refuse it again."""


class FencedWriterError(StratalogError):
    """Another attempt of a task, or another run of the query, writes under this transactional id."""


class LostTransactionError(StratalogError):
    """A decided batch can no longer be committed as a whole."""
