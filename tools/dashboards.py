"""Write the Grafana dashboards, `deploy/grafana/*.json`, from the panels that are declared here.

Usage: `python -m tools.dashboards [--check]`, in the root of the repository.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "grafana"
#: Grafana's model of a dashboard that this writes.
_SCHEMA_VERSION: Final = 41
_SOURCE: Final = {"type": "prometheus", "uid": "${source}"}
_COLUMNS: Final = 24
_HEIGHT: Final = 8
_TILE_HEIGHT: Final = 4

#: Labels of one broker.
_AT: Final = 'job=~"$job",instance=~"$instance"'
#: Also of the topics that are chosen; sums over all topics, which have no such label, are left out.
_OF: Final = f'{_AT},topic=~"$topic",topic!=""'
_SUM: Final = f'{_AT},topic=""'


@dataclass(frozen=True, slots=True)
class Query:
    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph, or with `tile` one number; that is red from `red` on."""

    title: str
    unit: str
    queries: tuple[Query, ...]
    help: str = ""
    tile: bool = False
    red: float | None = None
    width: int = 8


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    title: str
    panels: tuple[Panel, ...]
    has_topics: bool = False


def _graph(title: str, unit: str, *queries: tuple[str, str], help_: str = "", width: int = 8) -> Panel:
    return Panel(title, unit, tuple(Query(*query) for query in queries), help_, width=width)


def _tile(title: str, expr: str, *, unit: str = "short", red: float | None = None, help_: str = "") -> Panel:
    return Panel(title, unit, (Query(expr, ""),), help_, tile=True, red=red, width=4)


def _rate(name: str, labels: str = _AT) -> str:
    return f"rate({name}{{{labels}}}[$__rate_interval])"


def _mean(timer: str) -> str:
    return f"{_rate(timer + '_sum')} / {_rate(timer + '_count')}"


def _mean_of_produce(part: str) -> str:
    timer, labels = f"kafka_network_requestmetrics_{part}", f'{_AT},request="Produce"'
    return f"{_rate(timer + '_sum', labels)} / {_rate(timer + '_count', labels)}"


def _by_instance(expr: str) -> str:
    return f"sum by (instance) ({expr})"


def _by_topic(expr: str) -> str:
    return f"topk(10, sum by (topic) ({expr}))"


def _ratio_by_topic(part: str, whole: str) -> str:
    return f"sum by (topic) ({part}{{{_OF}}}) / sum by (topic) ({whole}{{{_OF}}})"


_TRAFFIC = "kafka_server_brokertopicmetrics_"
_MANAGER = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
_TIER = "kafka_log_remote_"
_REQUESTS = "kafka_network_requestmetrics_"
#: The requests that carry records.
_DATA: Final = 'request=~"Produce|FetchConsumer|FetchFollower"'
_PARTS_OF_TIME = (
    ("requestqueuetimems", "queue"),
    ("localtimems", "local"),
    ("remotetimems", "remote"),
    ("throttletimems", "throttled"),
    ("responsesendtimems", "sending"),
)
_GROUPS = "kafka_coordinator_group_groupmetadatamanager_"

BROKER = Dashboard(
    "broker",
    "stratalog: broker",
    (
        _tile("Brokers", f"count(kafka_server_kafkaserver_brokerstate{{{_AT}}})"),
        _tile("Topics", f"max({_CONTROLLER}globaltopiccount{{{_AT}}})"),
        _tile("Partitions", f"sum({_MANAGER}partitioncount{{{_AT}}})"),
        _tile("Partitions without a leader", f"max({_CONTROLLER}offlinepartitionscount{{{_AT}}})", red=1),
        _tile("Failed log directories", f"sum(kafka_log_logmanager_offlinelogdirectorycount{{{_AT}}})", red=1),
        _tile("On the disks", f"sum(kafka_log_log_size{{{_AT}}})", unit="bytes"),
        _graph("Bytes in and out", "Bps",
               (_by_instance(_rate(_TRAFFIC + "bytesin_total", _SUM)), "in {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "bytesout_total", _SUM)), "out {{instance}}")),
        _graph("Records in", "cps", (_by_instance(_rate(_TRAFFIC + "messagesin_total", _SUM)), "{{instance}}")),
        _graph("Appends and reads", "reqps",
               (_by_instance(_rate(_TRAFFIC + "totalproducerequests_total", _SUM)), "appends {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "totalfetchrequests_total", _SUM)), "reads {{instance}}"),
               help_="By partition: a request counts once for each of its partitions."),
        _graph("Failed appends and reads", "reqps",
               (_by_instance(_rate(_TRAFFIC + "failedproducerequests_total", _SUM)), "appends {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "failedfetchrequests_total", _SUM)), "reads {{instance}}")),
        _graph("Requests", "reqps",
               (f"topk(10, sum by (request) ({_rate(_REQUESTS + 'requests_total')}))", "{{request}}"),
               help_="The ten APIs with the most."),
        _graph("Time of requests, 99th percentile", "ms",
               (f'{_REQUESTS}totaltimems{{{_AT},{_DATA},quantile="0.99"}}', "{{request}} {{instance}}"),
               help_="Of the last minutes, newer ones count more. Fetches that wait for records are among them."),
        _graph("Where the time of Produce goes", "ms",
               *((_mean_of_produce(part), f"{name} {{{{instance}}}}") for part, name in _PARTS_OF_TIME),
               help_="Means. Remote: replicas, coordinators or checks on other threads."),
        _graph("Bytes in, by topic", "Bps", (_by_topic(_rate(_TRAFFIC + "bytesin_total", _OF)), "{{topic}}")),
        _graph("Bytes out, by topic", "Bps", (_by_topic(_rate(_TRAFFIC + "bytesout_total", _OF)), "{{topic}}")),
        _graph("Bytes on the disk, by topic", "bytes",
               (_by_topic(f"kafka_log_log_size{{{_OF}}}"), "{{topic}}")),
        _graph("Free on the disks", "bytes",
               (f"stratalog_log_directory_free_bytes{{{_AT}}}", "{{instance}} {{logDirectory}}")),
        _graph("Flushes", "ms",
               (_mean("kafka_log_logflushstats_logflushrateandtimems"), "{{instance}}"),
               help_="Milliseconds that a flush took, on the average."),
        _graph("Processor", "percentunit", (_rate("process_cpu_seconds_total"), "{{instance}}"),
               help_="Cores that the process keeps busy."),
        _graph("Memory", "bytes", (f"process_resident_memory_bytes{{{_AT}}}", "{{instance}}")),
        _graph("File descriptors in use", "percentunit",
               (f"process_open_fds{{{_AT}}} / process_max_fds{{{_AT}}}", "{{instance}}")),
        _graph("Connections", "short",
               (f"kafka_server_socket_server_metrics_connection_count{{{_AT}}}", "{{listener}} {{instance}}"),
               help_="Those that are open, by listener."),
        _graph("New connections", "cps",
               (f"kafka_server_socket_server_metrics_connection_accept_rate{{{_AT}}}", "{{listener}} {{instance}}")),
        _graph("Requests that wait", "short",
               (f"kafka_server_delayedoperationpurgatory_numdelayedoperations{{{_AT}}}",
                "{{delayedOperation}} {{instance}}")),
        _graph("Records that were refused", "cps",
               (_by_instance(_rate(_TRAFFIC + "invalidmessagecrcrecords_total", _SUM)), "CRC {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "invalidmagicnumberrecords_total", _SUM)), "format {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "invalidoffsetorsequencerecords_total", _SUM)), "offset {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "nokeycompactedtopicrecords_total", _SUM)), "no key {{instance}}")),
        _graph("Compaction", "percent",
               (f"kafka_log_logcleanermanager_max_dirty_percent{{{_AT}}}", "dirtiest partition {{instance}}"),
               (f"kafka_log_logcleaner_cleaner_recopy_percent{{{_AT}}}", "written of what was read {{instance}}")),
        _graph("Partitions that cannot be compacted", "short",
               (f"kafka_log_logcleanermanager_uncleanable_partitions_count{{{_AT}}}", "{{logDirectory}} {{instance}}"),
               (f"kafka_log_logcleaner_deadthreadcount{{{_AT}}}", "dead threads {{instance}}")),
    ),
    has_topics=True,
)  # fmt: skip

TIER = Dashboard(
    "tier",
    "stratalog: remote tier",
    (
        _tile("Object store away for", f"max(stratalog_tier_unreachable_seconds{{{_AT}}})", unit="s", red=60),
        _tile("Tasks without progress", f"sum(stratalog_tier_stalled_tasks{{{_AT}}})", red=1),
        _tile("Partitions that fail", f"count(stratalog_tier_failures_in_a_row{{{_AT}}} > 0) or vector(0)", red=1),
        _tile("In the tier", f"sum(stratalog_tier_remote_bytes{{{_AT}}})", unit="bytes"),
        _tile("Segments in the tier", f"sum(stratalog_tier_remote_segments{{{_AT}}})"),
        _tile("Sealed, not yet copied", f"sum(stratalog_tier_lag_bytes{{{_AT}}})", unit="bytes"),
        _graph("Copied, read", "Bps",
               (_by_instance(_rate(_TRAFFIC + "remotecopybytes_total", _SUM)), "copied {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "remotefetchbytes_total", _SUM)), "read {{instance}}")),
        _graph("Calls", "reqps",
               (_by_instance(_rate(_TRAFFIC + "remotecopyrequests_total", _SUM)), "copies {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "remotefetchrequests_total", _SUM)), "reads {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "remotedeleterequests_total", _SUM)), "deletions {{instance}}")),
        _graph("Failed", "reqps",
               (_by_instance(_rate(_TRAFFIC + "remotecopyerrors_total", _SUM)), "copies {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "remotefetcherrors_total", _SUM)), "reads {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "remotedeleteerrors_total", _SUM)), "deletions {{instance}}")),
        _graph("Sealed segments that wait for their copy", "bytes",
               (_by_topic(f"{_TRAFFIC}remotecopylagbytes{{{_OF}}}"), "{{topic}}")),
        _graph("Remote segments that wait for their deletion", "bytes",
               (_by_topic(f"{_TRAFFIC}remotedeletelagbytes{{{_OF}}}"), "{{topic}}")),
        _graph("Bytes in the tier, by topic", "bytes",
               (_by_topic(f"{_TRAFFIC}remotelogsizebytes{{{_OF}}}"), "{{topic}}")),
        _graph("Why the oldest local segment is not remote", "short",
               (f"sum by (reason) (stratalog_tier_status{{{_OF}}})", "{{reason}}"), help_="Partitions, by reason."),
        _graph("Time of a remote read", "ms",
               (_mean(_TIER + "remotelogmanager_remotelogreaderfetchrateandtimems"), "{{instance}}")),
        _graph("Reads that wait for a thread", "short",
               (f"{_TIER}remotestoragethreadpool_remotelogreadertaskqueuesize{{{_AT}}}", "{{instance}}")),
        _graph("Threads that have nothing to do", "percentunit",
               (f"{_TIER}remotestoragethreadpool_remotelogreaderavgidlepercent{{{_AT}}}", "readers {{instance}}"),
               (f"{_TIER}remotelogmanager_remotelogmanagertasksavgidlepercent{{{_AT}}}", "tasks {{instance}}")),
        _graph("Waits for the quota", "ms",
               (f"kafka_server_remotelogmanager_remote_copy_throttle_time_avg{{{_AT}}}", "copies {{instance}}"),
               (f"kafka_server_remotelogmanager_remote_fetch_throttle_time_avg{{{_AT}}}", "reads {{instance}}")),
        _graph("Cache of remote indexes", "bytes",
               (f"stratalog_tier_index_cache_bytes{{{_AT}}}", "{{instance}}")),
    ),
    has_topics=True,
)  # fmt: skip

GROUPS = Dashboard(
    "groups",
    "stratalog: groups and transactions",
    (
        _tile("Groups, classic protocol", f"sum({_GROUPS}numgroups{{{_AT}}})"),
        _tile("Groups, consumer protocol", f"sum(stratalog_consumer_groups{{{_AT}}})"),
        _tile("In a rebalance", f"sum({_GROUPS}numgroupspreparingrebalance{{{_AT}}}) + "
              f"sum({_GROUPS}numgroupscompletingrebalance{{{_AT}}})"),
        _tile("Transactional ids", f"sum(stratalog_transactional_ids{{{_AT}}})"),
        _tile("Late transactions", f"sum({_MANAGER}partitionswithlatetransactionscount{{{_AT}}})", red=1,
              help_="Partitions with a transaction that is open for longer than allowed."),
        _tile("Idempotent producers", f"sum({_MANAGER}produceridcount{{{_AT}}})"),
        _graph("Lag of groups, in records", "short",
               (f"topk(10, sum by (group) (stratalog_group_lag_records{{{_OF}}}))", "{{group}}")),
        _graph("Lag in the topics, in records", "short",
               (f"topk(10, sum by (group, topic) (stratalog_group_lag_records{{{_OF}}}))", "{{group}} {{topic}}")),
        _graph("Partition that is furthest behind, in records", "short",
               (f"topk(10, max by (group) (stratalog_group_lag_records{{{_OF}}}))", "{{group}}")),
        _graph("Groups of the classic protocol, by state", "short",
               (f"sum({_GROUPS}numgroupsstable{{{_AT}}})", "stable"),
               (f"sum({_GROUPS}numgroupsempty{{{_AT}}})", "empty"),
               (f"sum({_GROUPS}numgroupspreparingrebalance{{{_AT}}})", "preparing a rebalance"),
               (f"sum({_GROUPS}numgroupscompletingrebalance{{{_AT}}})", "completing a rebalance"),
               (f"sum({_GROUPS}numgroupsdead{{{_AT}}})", "dead")),
        _graph("Groups of the consumer protocol, by state", "short",
               (f"sum by (state) (stratalog_consumer_groups{{{_AT}}})", "{{state}}")),
        _graph("Transactional ids, by state", "short",
               (f"sum by (state) (stratalog_transactional_ids{{{_AT}}})", "{{state}}")),
        _graph("Records behind an open transaction", "short",
               (_by_topic(f"stratalog_log_high_watermark{{{_OF}}} - stratalog_log_last_stable_offset{{{_OF}}}"),
                "{{topic}}"),
               help_="What consumers with isolation.level=read_committed cannot read yet."),
        _graph("Transactions whose end cannot be written", "short",
               (f"kafka_coordinator_transaction_transactionmarkerchannelmanager_logappendretryqueuesize{{{_AT}}}",
                "{{instance}}")),
        _graph("Fetch sessions", "short",
               (f"kafka_server_fetchsessioncache_numincrementalfetchsessions{{{_AT}}}", "{{instance}}")),
        _graph("Clients that wait for their quota", "short",
               (f"kafka_server_produce_queue_size{{{_AT}}}", "producers {{instance}}"),
               (f"kafka_server_fetch_queue_size{{{_AT}}}", "consumers {{instance}}"),
               (f"kafka_server_request_queue_size{{{_AT}}}", "time of requests {{instance}}"),
               (f"kafka_server_controllermutation_queue_size{{{_AT}}}", "changes of topics {{instance}}")),
        _graph("Time of requests, by user", "percent",
               (f"topk(10, sum by (user, client_id) (kafka_server_request_request_time{{{_AT}}}))",
                "{{user}} {{client_id}}"),
               help_="Percent of a second per second, of those who have a quota."),
    ),
    has_topics=True,
)  # fmt: skip

REPLICATION = Dashboard(
    "replication",
    "stratalog: replication",
    (
        _tile("Partitions led", f"sum({_MANAGER}leadercount{{{_AT}}})"),
        _tile("Under-replicated", f"sum({_MANAGER}underreplicatedpartitions{{{_AT}}})", red=1),
        _tile("Below min.insync.replicas", f"sum({_MANAGER}underminisrpartitioncount{{{_AT}}})", red=1),
        _tile("At min.insync.replicas", f"sum({_MANAGER}atminisrpartitioncount{{{_AT}}})"),
        _tile("Offline replicas", f"sum({_MANAGER}offlinereplicacount{{{_AT}}})", red=1),
        _tile("Partitions that cannot follow",
              f"sum(kafka_server_replicafetchermanager_failedpartitionscount{{{_AT}}})", red=1),
        _graph("Replicated bytes", "Bps",
               (_by_instance(_rate(_TRAFFIC + "replicationbytesin_total")), "in {{instance}}"),
               (_by_instance(_rate(_TRAFFIC + "replicationbytesout_total")), "out {{instance}}")),
        _graph("Records that the furthest replica has to fetch", "short",
               (f"max by (instance, clientId) (kafka_server_replicafetchermanager_maxlag{{{_AT}}})",
                "{{instance}} {{clientId}}")),
        _graph("Records that replicas have to fetch, by topic", "short",
               (_by_topic(f"kafka_server_fetcherlagmetrics_consumerlag{{{_OF}}}"), "{{topic}}")),
        _graph("Changes of in-sync replicas", "cps",
               (_rate(_MANAGER + "isrshrinks_total"), "shrinks {{instance}}"),
               (_rate(_MANAGER + "isrexpands_total"), "expands {{instance}}"),
               (_rate(_MANAGER + "failedisrupdates_total"), "failed {{instance}}")),
        _graph("Under-replicated partitions, by topic", "short",
               (_by_topic(f"kafka_cluster_partition_underreplicated{{{_OF}}}"), "{{topic}}")),
        _graph("In-sync replicas of assigned ones", "percentunit",
               (_ratio_by_topic("kafka_cluster_partition_insyncreplicascount", "kafka_cluster_partition_replicascount"),
                "{{topic}}")),
        _graph("Fetches a second of the slowest fetcher", "reqps",
               (f"kafka_server_replicafetchermanager_minfetchrate{{{_AT}}}", "{{instance}} {{clientId}}")),
        _graph("Fetchers that have ended", "short",
               (f"kafka_server_replicafetchermanager_deadthreadcount{{{_AT}}}", "{{instance}} {{clientId}}")),
    ),
    has_topics=True,
)  # fmt: skip

DASHBOARDS: Final = (BROKER, TIER, GROUPS, REPLICATION)


def document(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana takes it."""
    return {
        "uid": f"stratalog-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["stratalog"],
        "schemaVersion": _SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "10s",
        "templating": {"list": list(_variables(dashboard))},
        "links": [{"type": "dashboards", "title": "stratalog", "tags": ["stratalog"], "asDropdown": True}],
        "annotations": {"list": []},
        "panels": list(_placed(dashboard.panels)),
    }


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}
    state = "kafka_server_kafkaserver_brokerstate"
    yield _variable("job", "Job", f"label_values({state}, job)")
    yield _variable("instance", "Broker", f'label_values({state}{{job=~"$job"}}, instance)')
    if dashboard.has_topics:
        yield _variable("topic", "Topic", f"label_values(kafka_log_log_size{{{_AT}}}, topic)")


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    """Put the panels in rows from left to right."""
    x, y, row = 0, 0, 0
    for number, panel in enumerate(panels, 1):
        height = _TILE_HEIGHT if panel.tile else _HEIGHT
        if x + panel.width > _COLUMNS:
            x, y, row = 0, y + row, 0
        yield _panel(panel, number) | {"gridPos": {"x": x, "y": y, "w": panel.width, "h": height}}
        x, row = x + panel.width, max(row, height)


def _panel(panel: Panel, number: int) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red is not None:
        steps.append({"color": "red", "value": panel.red})
    custom = {} if panel.tile else {"custom": {"fillOpacity": 10, "showPoints": "never"}}
    return {
        "id": number,
        "type": "stat" if panel.tile else "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": _SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
                "instant": panel.tile,
                "range": not panel.tile,
            }
            for place, query in enumerate(panel.queries)
        ],
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}} | custom,
            "overrides": [],
        },
        "options": (
            {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value"}
            if panel.tile
            else {
                "legend": {"displayMode": "list", "placement": "bottom"},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
        ),
    }


def main(arguments: list[str]) -> int:
    wrong = 0
    for dashboard in DASHBOARDS:
        path, text = FOLDER / f"{dashboard.name}.json", json.dumps(document(dashboard), indent=1) + "\n"
        if "--check" not in arguments:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is not what tools/dashboards.py says; run `python -m tools.dashboards`", file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
