"""`stratalog fsck`: an offline check of log directories, and repair of what is derived."""

from __future__ import annotations

from stratalog.cli.fsck.command import fsck

__all__ = ["fsck"]
