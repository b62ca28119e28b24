"""Generate `docs/metrics.md` from the declarations of the metrics.

python -m stratalog.web.documentation > docs/metrics.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stratalog.broker import metrics as broker_metrics
from stratalog.engine.metrics import ABSENT, Metric, catalogue as engine_metrics
from stratalog.remote.tier import MEANING

_HEAD = """\
# Metrics, tier status and the web address

    stratalog serve --data-dir D --web 127.0.0.1:8080

prints `ready broker=HOST:PORT web=URL`. That URL serves:

| path | content |
|---|---|
| `/` | the console: see [Look into a broker with the console](how-to/use_the_console.md) |
| `/api/...` | the console's pages as JSON; `/api/openapi.json` describes them |
| `/metrics` | metrics for Prometheus, as text, or as OpenMetrics if the client asks for it |
| `/health/live` | 200 if the broker's event loop responds, else 503: restart it |
| `/health/ready` | 200 if all clients are served; 503 while groups or transactions are loading |
| `/health` | the same as `/health/ready` |
| `/api/tier-status` | the tier status of every tiered partition as JSON; `?topic=T` for one topic, tiered or not |

Without `--web` nothing is served. The web server listens on that address only, and changes nothing unless
`stratalog.web.allow.changes` is set. On an address of this machine alone (127.0.0.1, ::1, localhost) every user there
may look, as long as the broker has no authorizer. Elsewhere a login with a user of the broker is needed, and its access
rules decide what is shown; `stratalog.web.login` changes that. `/metrics` needs it too, or
`Authorization: Bearer TOKEN` with the token of `stratalog.web.metrics.token`. `/health` is always open.

The server runs on a thread of its own. It serves at most {connections} connections at a time, and none for longer than
{seconds:.0f} s, so slow clients cannot block it. Install the extra for it: `pip install 'stratalog[web]'`.

This page is generated from the declarations in `src/stratalog/engine` and `src/stratalog/broker`. To print it, run
`python -m stratalog.web.documentation`; `--check docs/metrics.md` compares it with the file.

## Names

Kafka's metrics have the names that the usual rules of the JMX exporter give: lower case, underscores for other
characters, `...PerSec` as a counter that ends in `_total`, `Value` as the bare name. Panels of Kafka dashboards for
that exporter show what is listed here. The domain `kafka.log.remote`, which those rules do not cover, is spelled
`kafka_log_remote_...`. Timers have a `_sum` beside their `_count`, so that averages over any time can be computed.

Those of requests (`kafka_network_requestmetrics_...`) have Kafka's quantiles as well, of the last minutes and right
within 5 %; there are lines of a request once there was one. `Min`, `Max`, `Mean` and `StdDev` of requests, which those
rules leave out, end in `_min`, `_max`, `_mean` and `_stddev`, and are since the start. Prometheus computes rates:
`rate(kafka_server_brokertopicmetrics_bytesin_total{{topic="orders"}}[1m])`.

A metric by topic also has one line without the label `topic`, the sum of all topics. It does not fall when a topic is
deleted. Counters begin at 0 when the broker starts. Values are read when a client asks for them; counting costs a few
additions a batch. The process shows itself under the usual names: `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_open_fds`.
"""

_STATUS = """\
## Tier status

`stratalog tier status`, `/api/tier-status` and the metric `stratalog_tier_status` explain for each tiered partition why
its oldest segment that is not remote is still local. Later segments wait for it. For each partition the JSON has the
offsets of both tiers, the lag (sealed segments that are not remote, and their bytes), `failures` (task, number of
failed runs in a row, since when, last error: wrong credentials, a bucket that is missing or read-only, a wrong clock)
and `segments`: every local segment with its reason.

    stratalog tier status --bootstrap-server 127.0.0.1:9092           # needs no web address
    stratalog tier status --web http://127.0.0.1:8080 --topic orders --json
    stratalog tier status --data-dir D                                # of a broker that is not running

A terminal gets a table. A pipe gets lines with tabs and sizes in bytes: partition, reason, local bytes, remote bytes,
log start offset, local log start offset, last remote offset, log end offset, lag in bytes and segments, the reason in
words, errors. Exit code 0: nothing is failing. 1: something is failing. 2: wrong usage, or no answer. With
`--data-dir`, open transactions, the quota and failures are unknown, and a segment is as old as its file.

| reason | meaning |
|---|---|
"""

_ABSENT = """\
## Metrics of Kafka that do not exist here

Everything else that a broker of Apache Kafka 4.4.0 registers in JMX:

| MBean | reason |
|---|---|
"""


def page() -> str:
    from stratalog.web.server import CONNECTION_S, CONNECTIONS_MAX  # loads uvicorn

    metrics: list[Metric[Any]] = [*engine_metrics.METRICS, *broker_metrics.METRICS, *broker_metrics.LAG_METRICS]
    parts = [_HEAD.format(connections=CONNECTIONS_MAX, seconds=CONNECTION_S)]
    domains: dict[str, list[Metric[Any]]] = {}
    for metric in metrics:
        domains.setdefault(metric.mbean.split(",")[0].split(" ")[0], []).append(metric)
    for domain, listed in sorted(domains.items(), key=lambda entry: (not entry[0], entry[0])):
        parts.append(f"\n## `{domain}`\n\n" if domain else "\n## Our own\n\n")
        parts.append(_table(listed))
    parts.append("\n" + _STATUS)
    parts += [f"| `{reason.value}` | {meaning} |\n" for reason, meaning in MEANING.items()]
    parts.append("\n" + _ABSENT)
    parts += [f"| `{absent.pattern}` | {absent.reason} |\n" for absent in ABSENT]
    return "".join(parts)


def _table(metrics: Iterable[Metric[Any]]) -> str:
    rows = ["| name | labels | type | meaning |\n", "|---|---|---|---|\n"]
    for metric in sorted(metrics, key=lambda metric: metric.name):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {labels} | {metric.kind.value} | {metric.help} |\n")
    return "".join(rows)


def main(arguments: list[str]) -> int:
    """Print the page, or compare it with a file. Return 1 if they differ."""
    if arguments[:1] != ["--check"]:
        print(page(), end="")
        return 0
    path = Path(arguments[1])
    if path.read_text(encoding="utf-8") == page():
        return 0
    print(
        f"{path} is out of date; write it again: python -m stratalog.web.documentation > {path}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
