"""Requested records that are missing or unreadable: raise an error, or warn and count."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from stratalog.errors import StratalogError

logger = logging.getLogger("stratalog.spark")


class DataLossError(StratalogError):
    """Requested records are missing or unreadable; `failOnDataLoss=false` reads around them."""


class OnDataLoss(Protocol):
    """A handler of losses: a message, an upper bound of the requested offsets lost, and the bytes of a log lost."""

    def __call__(self, message: str, offsets: int = 0, size: int = 0) -> None: ...


@dataclass(slots=True)
class DataLoss:
    """Raises DataLossError at the first loss if `fails`. Otherwise it logs a warning for each loss and counts them."""

    fails: bool
    losses: int = 0
    offsets: int = 0
    size: int = 0

    def __call__(self, message: str, offsets: int = 0, size: int = 0) -> None:
        if self.fails:
            raise DataLossError(f"{message}; set failOnDataLoss=false to read around it")
        self.losses += 1
        self.offsets += offsets
        self.size += size
        counted = f" ({_count(offsets, size)})" if offsets or size else ""
        logger.warning("%s; read around%s, as failOnDataLoss=false says", message, counted)

    def close(self, what: str) -> None:
        """Log the total losses of reading `what`, if there were any."""
        if self.losses:
            logger.warning(
                "%s: %d %s, in all %s not read",
                what,
                self.losses,
                "loss" if self.losses == 1 else "losses",
                _count(self.offsets, self.size),
            )


def on_data_loss(fail: bool) -> DataLoss:
    """Return the handler of lost or damaged data. With `fail` it raises DataLossError; otherwise it logs a warning."""
    return DataLoss(fail)


def _count(offsets: int, size: int) -> str:
    return f"up to {offsets} offsets" + (f" in {size} bytes" if size else "")
