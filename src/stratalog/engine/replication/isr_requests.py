"""Send changes of ISRs to the controller, one AlterPartition at a time with all that are waiting.

Source: `DefaultAlterPartitionManager` of Kafka 4.4.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from stratalog.errors import StratalogError
from stratalog.wire import ApiKey
from stratalog.wire.client import UnreachableError

if TYPE_CHECKING:
    from stratalog.engine.replica_changes import ClusterView
    from stratalog.engine.replication.isr import IsrChange
    from stratalog.engine.replication.led_replicas import LedReplicas

logger = logging.getLogger(__name__)

_VERSIONS: Final = (3, 3)
_RETRY_S: Final = 0.1
_NETWORK_EXCEPTION: Final = 13

_Key = tuple[UUID, int]


class IsrRequests:
    """Sends changes on its own thread. A later change of a partition replaces an earlier one."""

    def __init__(self, cluster: ClusterView) -> None:
        self._cluster = cluster
        self._changed = threading.Condition()
        self._waiting: dict[_Key, tuple[LedReplicas, IsrChange]] = {}
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="stratalog-alter-partition", daemon=True)
        self._thread.start()

    def submit(self, led: LedReplicas, change: IsrChange) -> None:
        with self._changed:
            self._waiting[led.key.topic_id, led.key.partition] = (led, change)
            self._changed.notify()

    def close(self) -> None:
        """Stop sending. Waits for a running request, five seconds at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(5)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                sent, self._waiting = self._waiting, {}
            sent = {key: (led, change) for key, (led, change) in sent.items() if led.is_wanted(change)}
            if not sent:
                continue
            again = self._send(sent)
            if again:
                with self._changed:
                    self._waiting = {**again, **self._waiting}
                    self._changed.wait_for(lambda: self._closed, _RETRY_S)

    def _send(self, sent: dict[_Key, tuple[LedReplicas, IsrChange]]) -> dict[_Key, tuple[LedReplicas, IsrChange]]:
        """Return the changes to send again."""
        try:
            response = self._cluster.ask_controller(
                ApiKey.ALTER_PARTITION,
                _VERSIONS,
                broker_id=self._cluster.node_id,
                broker_epoch=self._cluster.broker_epoch,
                topics=_topics(sent),
            )
            code = int(response.error_code)
            answers = {
                (topic.topic_id, partition.partition_index): partition
                for topic in response.topics
                for partition in topic.partitions
            }
        except (UnreachableError, StratalogError, OSError) as error:
            logger.warning("The controller cannot be asked to change in-sync replicas: %s", error)
            code, answers = _NETWORK_EXCEPTION, {}
        except Exception:
            logger.exception("AlterPartition failed")
            code, answers = _NETWORK_EXCEPTION, {}
        again = {}
        for key, (led, change) in sent.items():
            try:
                if _settle(led, change, code, answers.get(key)):
                    again[key] = (led, change)
            except Exception:  # changes of other partitions must still be sent
                logger.exception(
                    "The new in-sync replicas of %s-%d cannot be applied", led.key.topic, led.key.partition
                )
        return again


def _settle(led: LedReplicas, change: IsrChange, code: int, answer: Any) -> bool:
    """Apply the controller's response to a change. Return whether to send it again."""
    refused = code or (_NETWORK_EXCEPTION if answer is None else int(answer.error_code))
    if refused:
        return led.refuse(change, refused)
    led.accept(
        change,
        map(int, answer.isr),
        leader_epoch=int(answer.leader_epoch),
        partition_epoch=int(answer.partition_epoch),
        leader_recovery_state=int(answer.leader_recovery_state),
    )
    return False


def _topics(sent: dict[_Key, tuple[LedReplicas, IsrChange]]) -> list[dict[str, Any]]:
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for (topic_id, partition), (_, change) in sent.items():
        topics.setdefault(topic_id, []).append(
            {
                "partition_index": partition,
                "leader_epoch": change.leader_epoch,
                "new_isr_with_epochs": [{"broker_id": broker, "broker_epoch": epoch} for broker, epoch in change.isr],
                "leader_recovery_state": change.leader_recovery_state,
                "partition_epoch": change.partition_epoch,
            }
        )
    return [{"topic_id": topic_id, "partitions": partitions} for topic_id, partitions in topics.items()]
