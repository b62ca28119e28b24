"""Current leaders in responses with NOT_LEADER_OR_FOLLOWER, so that clients can continue there at once (KIP-951).

Source: `KafkaApis.processShareAcknowledgeResponse` and `processShareFetchResponse` of Kafka 4.4.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from stratalog.broker.cluster_membership import Nodes, endpoints_of
from stratalog.errors import FencedLeaderEpochError, NotLeaderOrFollowerError

if TYPE_CHECKING:
    from stratalog.broker.server import RequestContext

_NOBODY: Final = -1
_HINTED: Final = (NotLeaderOrFollowerError.code, FencedLeaderEpochError.code)


class LeaderHints:
    """The leaders in one response. A single broker names itself; a broker of a cluster uses its metadata."""

    def __init__(self, ctx: RequestContext) -> None:
        self._ctx = ctx
        self._named: set[int] = set()

    def leader(self, topic: str | None, partition: int, error_code: int) -> Any:
        """Return the current leader of a partition; empty for other error codes."""
        if error_code not in _HINTED or topic is None:
            return self._ctx.make("LeaderIdAndEpoch")
        leader_id, epoch = self._known(topic, partition) or (_NOBODY, _NOBODY)
        if leader_id != _NOBODY:
            self._named.add(leader_id)
        return self._ctx.make("LeaderIdAndEpoch", leader_id=leader_id, leader_epoch=epoch)

    def _known(self, topic: str, partition: int) -> tuple[int, int] | None:
        broker = self._ctx.broker
        if broker.cluster is not None:
            return broker.cluster.leader(topic, partition)
        found = broker.partition(topic, partition)
        return None if found is None or found.leader_epoch < 0 else (broker.node_id, found.leader_epoch)

    def nodes(self) -> list[Any]:
        """Return the endpoints of the leaders that were returned."""
        broker, peer = self._ctx.broker, self._ctx.peer
        nodes: Nodes = [(broker.node_id, peer.reached_host, peer.listener.port, broker.config["broker.rack"])]
        if broker.cluster is not None:
            nodes = endpoints_of(broker.cluster, sorted(self._named), peer.listener.name)
        return [
            self._ctx.make("NodeEndpoint", node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in nodes
            if node_id in self._named
        ]
