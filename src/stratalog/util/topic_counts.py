"""Counts that only grow, one set a topic, and the total of all: what rates are made of."""

from __future__ import annotations

import threading
from dataclasses import astuple
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    CountsT = TypeVar("CountsT", bound=DataclassInstance)
else:
    CountsT = TypeVar("CountsT")


class TopicCounts(Generic[CountsT]):
    """`counts` is a dataclass of numbers that begin at 0; counts are of this process.

    Thread-safe. A count is raised with `counts.topic(name).requests += 1`, under no lock: where threads meet on one
    topic, one may be lost, which is no harm to a rate.
    """

    def __init__(self, counts: type[CountsT]) -> None:
        self._make = counts
        self._lock = threading.Lock()
        self._topics: dict[str, CountsT] = {}
        self._gone = counts()

    def topic(self, name: str) -> CountsT:
        """Return the counts of a topic, to be raised."""
        found = self._topics.get(name)
        if found is None:
            with self._lock:
                found = self._topics.setdefault(name, self._make())
        return found

    def forget(self, name: str) -> None:
        """Delete the topic's counts: what it had stays in the total only, which never falls."""
        with self._lock:
            left = self._topics.pop(name, None)
            if left is not None:
                self._gone = self._sum([self._gone, left])

    def topics(self) -> dict[str, CountsT]:
        with self._lock:
            return dict(self._topics)

    def total(self) -> CountsT:
        """Return the count of all topics, deleted ones included."""
        with self._lock:
            return self._sum([self._gone, *self._topics.values()])

    def _sum(self, counts: list[CountsT]) -> CountsT:
        return self._make(*map(sum, zip(*map(astuple, counts), strict=True)))
