"""`stratalog cluster status`: brokers, controllers, leaders, and replicas that are behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from stratalog.cli.cluster.replica_lag import ReplicaLags, replica_lags
from stratalog.cli.connection import ClusterOptions
from stratalog.cli.options import Json
from stratalog.cli.out import counted, print_json, print_rows
from stratalog.errors import StratalogError
from stratalog.util import join_host_port
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, Cluster, ConnectionOptions, TopicPartition, check

if TYPE_CHECKING:
    from rich.text import Text

_BROKER: Final = 4
#: A setting that only brokers of stratalog have.
_OWN_KEY: Final = "stratalog.large.segments"
_UNKNOWN: Final = "unknown"
_METADATA_TOPIC: Final = "__cluster_metadata"
_PARTITIONS_SHOWN: Final = 20
_GOOD: Final = "green"
_BEHIND: Final = "yellow"
_BAD: Final = "bold red"


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker. `kind` is "stratalog", "kafka", or "unknown" for one that does not answer."""

    id: int
    address: str
    kind: str
    rack: str | None
    is_fenced: bool
    leaders: int
    replicas: int
    #: Records of the metadata log that it has not fetched yet; None where the quorum does not say.
    metadata_lag: int | None
    #: Records that its replicas lack which are not in sync; None where it or a leader does not say.
    replica_lag: int | None


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """One voter of the quorum."""

    id: int
    leads: bool
    metadata_lag: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """A partition without a leader, or with replicas that are not in sync."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]

    @property
    def is_offline(self) -> bool:
        return self.leader < 0

    @property
    def is_behind(self) -> bool:
        return set(self.isr) != set(self.replicas)


def status(servers: ClusterOptions, json_: Json = False) -> int:
    """Show brokers, controllers, and partitions with replicas that are behind.

    "replica lag" counts the records that a leader has and a replica that is not in sync has not: for each of these
    partitions, and for each broker in all. "-" stands for a replica, or a leader, that does not answer.

    The exit code is 1 when a partition has no leader or replicas that are not in sync, or a broker is fenced.

    \b
    Example:
      stratalog cluster status --bootstrap-server h:9092
    """
    with servers.open() as cluster:
        cluster_id = cluster.cluster_id()
        partitions = all_partitions(cluster.any)
        leader_epoch, controllers, metadata_lags = _quorum(cluster.any)
        known = _registered(cluster)
        kinds = {int(each.broker_id): _kind(each, cluster.options) for each in known}
        behind = [each for each in partitions if each.is_offline or each.is_behind]
        answering = [each for each in known if kinds[int(each.broker_id)] != _UNKNOWN]
        addresses = {int(each.broker_id): (str(each.host), int(each.port)) for each in answering}
        lags = _lags_out_of_sync(behind, replica_lags(behind, addresses, cluster.options))
    brokers = _brokers(known, kinds, partitions, metadata_lags, lags)
    if json_:
        print_json(
            {
                "cluster_id": cluster_id,
                "brokers": [asdict(each) for each in brokers],
                "controllers": [asdict(each) for each in controllers],
                "controller_epoch": leader_epoch,
                "partitions": len(partitions),
                "under_replicated": [asdict(each) | {"lag": lags[each.topic, each.partition]} for each in behind],
                "offline": [asdict(each) for each in partitions if each.is_offline],
                "kinds": dict(Counter(each.kind for each in brokers)),
            }
        )
    else:
        _print(cluster_id, brokers, controllers, partitions, behind, lags)
    return 1 if behind or any(each.is_fenced for each in brokers) else 0


def all_partitions(client: Client) -> list[PartitionStatus]:
    """Query a broker for the state of every partition of the cluster."""
    answer = client.call(ApiKey.METADATA, (1, 12), topics=None, allow_auto_topic_creation=False)
    return [
        PartitionStatus(
            str(topic.name),
            int(each.partition_index),
            int(each.leader_id),
            list(map(int, each.replica_nodes)),
            list(map(int, each.isr_nodes)),
        )
        for topic in answer.topics
        for each in topic.partitions
    ]


def _quorum(client: Client) -> tuple[int, list[ControllerStatus], dict[int, int]]:
    """Return the epoch of the quorum, its voters, and how far each observer is behind."""
    answer = client.call(
        ApiKey.DESCRIBE_QUORUM, (0, 2), topics=[{"topic_name": _METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
    )
    check(answer.error_code, getattr(answer, "error_message", None), "quorum")
    partition = answer.topics[0].partitions[0]
    check(partition.error_code, getattr(partition, "error_message", None), "quorum")
    ends = {int(each.replica_id): int(each.log_end_offset) for each in partition.current_voters}
    end = ends.get(int(partition.leader_id), max(ends.values(), default=0))
    controllers = [
        ControllerStatus(voter, voter == int(partition.leader_id), max(0, end - offset))
        for voter, offset in sorted(ends.items())
    ]
    lags = {int(each.replica_id): max(0, end - int(each.log_end_offset)) for each in partition.observers}
    return int(partition.leader_epoch), controllers, lags


def _lags_out_of_sync(
    partitions: list[PartitionStatus], lags: ReplicaLags
) -> dict[TopicPartition, dict[int, int | None]]:
    """Return the lags of the replicas that are not in sync, by partition and replica; None where not known."""
    found = {}
    for each in partitions:
        key = each.topic, each.partition
        known = lags.get(key, {})
        found[key] = {replica: known.get(replica) for replica in each.replicas if replica not in each.isr}
    return found


def _registered(cluster: Cluster) -> list[Any]:
    answer = cluster.any.call(ApiKey.DESCRIBE_CLUSTER, (0, 2), endpoint_type=1, include_fenced_brokers=True)
    check(answer.error_code, answer.error_message)
    return sorted(answer.brokers, key=lambda each: each.broker_id)


def _brokers(
    registered: list[Any],
    kinds: Mapping[int, str],
    partitions: list[PartitionStatus],
    metadata_lags: Mapping[int, int],
    lags: Mapping[TopicPartition, Mapping[int, int | None]],
) -> list[BrokerStatus]:
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(broker for each in partitions for broker in each.replicas)
    behind: dict[int, list[int | None]] = {}
    for by_replica in lags.values():
        for replica, lag in by_replica.items():
            behind.setdefault(replica, []).append(lag)
    return [
        BrokerStatus(
            id=(broker := int(each.broker_id)),
            address=join_host_port(each.host, each.port),
            kind=kinds[broker],
            rack=each.rack,
            is_fenced=bool(getattr(each, "is_fenced", False)),
            leaders=leaders[broker],
            replicas=replicas[broker],
            metadata_lag=metadata_lags.get(broker),
            replica_lag=_sum(behind.get(broker, [])),
        )
        for each in registered
    ]


def _sum(lags: list[int | None]) -> int | None:
    return None if None in lags else sum(each for each in lags if each is not None)


def _kind(broker: Any, options: ConnectionOptions) -> str:
    """Query a setting that only our brokers have: no response of Kafka's names the vendor."""
    wanted = {"resource_type": _BROKER, "resource_name": str(broker.broker_id), "configuration_keys": [_OWN_KEY]}
    try:
        client = Client(broker.host, int(broker.port), options)
        try:
            answer = client.call(ApiKey.DESCRIBE_CONFIGS, (1, 4), resources=[wanted])
        finally:
            client.close()
    except StratalogError:
        return _UNKNOWN
    return "stratalog" if any(each.configs for each in answer.results) else "kafka"


def _print(
    cluster_id: str,
    brokers: list[BrokerStatus],
    controllers: list[ControllerStatus],
    partitions: list[PartitionStatus],
    behind: list[PartitionStatus],
    lags: Mapping[TopicPartition, Mapping[int, int | None]],
) -> None:
    columns = ("broker", "address", "kind", "rack", "state", "leaders", "replicas", "metadata lag", "replica lag")
    rows = [
        (
            each.id,
            each.address,
            each.kind,
            each.rack or "-",
            _colored("fenced", _BAD) if each.is_fenced else _colored("alive", _GOOD),
            each.leaders,
            each.replicas,
            "-" if each.metadata_lag is None else each.metadata_lag,
            "-" if each.replica_lag is None else each.replica_lag,
        )
        for each in brokers
    ]
    print_rows(columns, rows, f"cluster {cluster_id}")
    lines = [
        (each.id, _colored("leads", _GOOD) if each.leads else "follows", each.metadata_lag) for each in controllers
    ]
    print_rows(("controller", "role", "metadata lag"), lines)
    shown = [
        (
            each.topic,
            each.partition,
            _colored("none", _BAD) if each.is_offline else each.leader,
            each.replicas,
            _colored(str(each.isr), _BAD if each.is_offline else _BEHIND),
            ", ".join(
                f"{replica}: {'-' if lag is None else lag}" for replica, lag in lags[each.topic, each.partition].items()
            ),
        )
        for each in sorted(behind, key=lambda each: not each.is_offline)[:_PARTITIONS_SHOWN]
    ]
    if shown:
        print_rows(("topic", "partition", "leader", "replicas", "in sync", "replica lag"), shown)
    kinds = Counter(each.kind for each in brokers)
    print(f"{counted(len(brokers), 'broker')}: {', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))}")
    if not behind:
        print(f"{counted(len(partitions), 'partition')}, all replicas in sync")
        return
    offline = sum(each.is_offline for each in partitions)
    under_replicated = sum(each.is_behind for each in partitions)
    print(f"{counted(len(partitions), 'partition')}: {offline} without a leader, {under_replicated} under-replicated")


def _colored(text: str, style: str) -> Text:
    from rich.text import Text  # --help does without

    return Text(text, style=style)
