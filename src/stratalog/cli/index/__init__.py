"""`stratalog index`: look at offset and time indexes, hold them against their logs, make them anew, change their format."""

from __future__ import annotations

from stratalog.cli.index.command import app

__all__ = ["app"]
