"""The record of loaded files and of the round in progress, which makes a load incremental and exactly once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from stratalog.jobs import State
from stratalog.spark.ingest.values import SourceFile
from stratalog.spark.sink import NumberedBatch, WriteTarget, stream_name


class Memory:
    """The record of the loads into one topic. Without a state it is not saved."""

    def __init__(self, state: State | None, target: WriteTarget, topic: str, query: str) -> None:
        self._state = state
        self._name = f"ingest-{topic}"
        self._query = query
        document = (state.load(self._name) if state is not None else None) or {}
        self.files: dict[str, list[int]] = dict(document.get("files", {}))
        self._round = int(document.get("round", -1))
        self._pending: dict[str, list[int]] = {}
        pending = document.get("pending")
        stream = stream_name(query, topic) or query
        if pending is not None and target.is_published(NumberedBatch(stream, self._round)):
            self.files |= pending

    def begin(self, files: Sequence[SourceFile]) -> None:
        """Record a round before it is written."""
        self._round += 1
        self._pending = {file.path: [file.size, file.modified_ms] for file in files}
        self._save(self._pending)

    def options(self) -> dict[str, str]:
        """Return the options by which the sink identifies the round."""
        if self._state is None:
            return {}
        return {"queryId": self._query, "batchId": str(self._round)}

    def end(self) -> None:
        """Record that the round is published."""
        self.files |= self._pending
        self._save(None)

    def _save(self, pending: dict[str, list[int]] | None) -> None:
        if self._state is not None:
            document = {"round": self._round, "files": self.files, "pending": pending}
            self._state.save(self._name, document)


def query_id(topic: str, location: str) -> str:
    """Return the id of the loads into a topic that share a state."""
    return f"ingest {topic} {hashlib.sha256(location.encode()).hexdigest()[:16]}"
