"""`stratalog dump`: what is in a segment, index, snapshot or checkpoint file, in kafka-dump-log's words."""

from __future__ import annotations

from stratalog.cli.dump.command import dump

__all__ = ["dump"]
