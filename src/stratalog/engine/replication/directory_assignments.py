"""Report the log directories of replicas to the controller (AssignReplicasToDirs), one request at a time.

The controller elects a replica only while its recorded directory is alive (KIP-858). So differences from the metadata
are reported before the broker is unfenced, and for every new replica.

Source: `AssignmentsManager` of Kafka 4.4.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from stratalog.errors import StratalogError
from stratalog.wire import ApiKey

if TYPE_CHECKING:
    from stratalog.engine.replica_changes import ClusterView

logger = logging.getLogger(__name__)

_VERSIONS: Final = (0, 0)
#: Kafka's limit per request.
_ASSIGNMENTS_MAX: Final = 2250
#: Pause before a retry, doubled each time up to the limit.
_RETRY_S, _RETRY_MAX_S = 0.5, 5.0
#: The partition is gone or was moved to other brokers, or the metadata version is older than directories (Kafka 3.7):
#: NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, UNSUPPORTED_VERSION. Any other error passes.
_FINAL: Final = frozenset({6, 3, 100, 35})
_NETWORK_EXCEPTION: Final = 13

_Key = tuple[UUID, int]

#: Called once with the controller's error code: 0 when the directory is in the metadata.
Answered = Callable[[int], object]


def _ignore(_: int) -> None:
    """Do nothing: the answer is not needed."""


@dataclass(frozen=True, slots=True, eq=False)
class _Assignment:
    directory_id: UUID
    on_answer: Answered = _ignore


class DirectoryAssignments:
    """Sends assignments on its own thread, started on demand.

    A later assignment of a partition replaces an earlier one.
    """

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._changed = threading.Condition()
        self._waiting: dict[_Key, _Assignment] = {}
        self._sent: dict[_Key, _Assignment] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, topic_id: UUID, partition: int, directory_id: UUID, on_answer: Answered | None = None) -> None:
        """Report the directory of a replica. Without `on_answer`, one that is already on its way is not sent again.

        `on_answer` is called on the sending thread, unless a later assignment replaces this one before it is sent.
        """
        with self._changed:
            key = topic_id, partition
            last = self._waiting.get(key) or self._sent.get(key)
            if self._closed or (on_answer is None and last is not None and last.directory_id == directory_id):
                return
            self._waiting[key] = _Assignment(directory_id, on_answer or _ignore)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="stratalog-assign-directories", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait_until_assigned(self, timeout_s: float) -> bool:
        """Wait until the controller has every submitted assignment. Return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or not (self._waiting or self._sent), timeout_s)

    def close(self) -> None:
        """Stop sending. Waits for a running request, five seconds at most."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(5)

    def _run(self) -> None:
        pause_s = _RETRY_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                self._sent = dict(islice(self._waiting.items(), _ASSIGNMENTS_MAX))
                for key in self._sent:
                    del self._waiting[key]
                sent = self._sent
            again = self._send(sent)
            with self._changed:
                self._sent = {}
                self._waiting = {**again, **self._waiting}
                self._changed.notify_all()
                if again:
                    self._changed.wait_for(lambda: self._closed, pause_s)
                    pause_s = min(pause_s * 2, _RETRY_MAX_S)
                else:
                    pause_s = _RETRY_S

    def _send(self, sent: dict[_Key, _Assignment]) -> dict[_Key, _Assignment]:
        try:
            response = self._cluster.ask_controller(
                ApiKey.ASSIGN_REPLICAS_TO_DIRS,
                _VERSIONS,
                broker_id=self._cluster.node_id,
                broker_epoch=self._cluster.broker_epoch,
                directories=_directories(sent),
            )
        except (StratalogError, OSError) as error:
            logger.warning("The directories of replicas could not be reported to the controller: %s", error)
            return sent
        except Exception:
            logger.exception("AssignReplicasToDirs failed")
            return sent
        code = int(response.error_code)
        if code:
            return self._after_error(code, sent)
        answers = {
            (topic.topic_id, int(partition.partition_index)): int(partition.error_code)
            for directory in response.directories
            for topic in directory.topics
            for partition in topic.partitions
        }
        again: dict[_Key, _Assignment] = {}
        for key, assignment in sent.items():
            again |= self._after_error(answers.get(key, _NETWORK_EXCEPTION), {key: assignment})
        return again

    @staticmethod
    def _after_error(code: int, sent: dict[_Key, _Assignment]) -> dict[_Key, _Assignment]:
        """Return what to report again: until then, no replica whose recorded directory is wrong may be elected."""
        if code and code not in _FINAL:
            logger.warning("The controller did not take the directories of %d replicas (error %d)", len(sent), code)
            return sent
        if code:
            logger.info("The controller rejected the directories of %d replicas (error %d)", len(sent), code)
        for assignment in sent.values():
            assignment.on_answer(code)
        return {}


def _directories(sent: dict[_Key, _Assignment]) -> list[dict[str, Any]]:
    found: dict[UUID, dict[UUID, list[dict[str, int]]]] = {}
    for (topic_id, partition), assignment in sent.items():
        found.setdefault(assignment.directory_id, {}).setdefault(topic_id, []).append({"partition_index": partition})
    return [
        {
            "id_": directory_id,
            "topics": [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()],
        }
        for directory_id, topics in found.items()
    ]
