"""Who leads the partitions of an answer that says NOT_LEADER_OR_FOLLOWER: clients go on there at once (KIP-951).

Source: `KafkaApis.processShareAcknowledgeResponse` and `processShareFetchResponse` of Kafka 4.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stratalog.errors import FencedLeaderEpochError, NotLeaderOrFollowerError

if TYPE_CHECKING:
    from stratalog.broker.server import RequestContext

_HINTED: Final = (NotLeaderOrFollowerError.code, FencedLeaderEpochError.code)


class LeaderHints:
    """The leaders that one answer of a broker by itself names: that is, the broker."""

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._names_itself = False

    def leader(self, topic: str | None, partition: int, error_code: int) -> Any:
        """Return what is told of the leader of a partition; only these two errors tell anything."""
        if error_code not in _HINTED or topic is None:
            return self._ctx.make("LeaderIdAndEpoch")
        found = self._ctx.broker.partition(topic, partition)
        if found is None or found.leader_epoch < 0:
            return self._ctx.make("LeaderIdAndEpoch", leader_id=-1, leader_epoch=-1)
        self._names_itself = True
        return self._ctx.make("LeaderIdAndEpoch", leader_id=self._ctx.broker.node_id, leader_epoch=found.leader_epoch)

    def nodes(self) -> list[Any]:
        """Return where the leaders are reached that were told of."""
        if not self._names_itself:
            return []
        broker, peer = self._ctx.broker, self._ctx.peer
        return [
            self._ctx.make(
                "NodeEndpoint",
                node_id=broker.node_id,
                host=peer.reached_host,
                port=peer.listener.port,
                rack=broker.config["broker.rack"],
            )
        ]
