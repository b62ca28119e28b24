"""`docs/metrics.md`, written from the declarations of the metrics.

python -m stratalog.web.documentation > docs/metrics.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stratalog.broker import metrics as broker_metrics
from stratalog.engine.metrics import ABSENT, Metric
from stratalog.engine.metrics import metrics as engine_metrics
from stratalog.remote.tier import MEANING

_HEAD = """\
# Metrics, tier status and the page

    stratalog serve --data-dir D --web 127.0.0.1:8080

prints `ready broker=HOST:PORT web=URL`. Under that URL there are

| path | what |
|---|---|
| `/` | a page for people: topics, partitions, sizes in both tiers, what waits for upload, and why |
| `/metrics` | metrics for Prometheus (text; OpenMetrics for whoever asks for it) |
| `/api/tier-status` | the tier status of every tiered partition as JSON; `?topic=T` for one topic, tiered or not |
| `/api/topics` | what the page shows, as JSON |

Without `--web` nothing is served. The web server listens on that address only, is read-only and has no authentication:
give it an address that only those reach who may know the names of topics. It runs on a thread of its own; at most
{connections} connections are served at a time, and none for longer than {seconds:.0f} s, so that slow clients cannot
hold it. It needs `pip install 'stratalog[web]'`.

Written from the declarations in `src/stratalog/engine` and `src/stratalog/broker`; `python -m
stratalog.web.documentation` prints this page, and with `--check docs/metrics.md` says whether it is what they say.

## Names

Metrics of Kafka's have the names that the usual rules of the JMX exporter give: everything in lower case, what is no
letter or digit an underscore, `...PerSec` a counter that ends in `_total`, `Value` the bare name. Dashboards for a
Kafka behind that exporter find what they look for. Beyond the rules: the domain `kafka.log.remote`, which they pass
over, is spelled `kafka_log_remote_...`; timers have `_count` and `_sum` instead of quantiles, so that averages over any
time can be made. Rates are for Prometheus to make:
`rate(kafka_server_brokertopicmetrics_bytesin_total{{topic="orders"}}[1m])`.

What is counted by topic has one line without the label `topic` as well, for all topics together: it does not fall when
a topic is deleted. Counters begin at 0 with the broker. Values are read when they are asked for; counting costs a few
additions a batch.
"""

_STATUS = """\
## Tier status

`stratalog tier status`, `/api/tier-status` and the metric `stratalog_tier_status` say of each tiered partition why its
oldest segment that is not remote is not; the others wait for it. The JSON has for each partition the offsets of both
tiers, the lag (sealed segments that are not remote, and their bytes), `failures` (task, how many turns in a row, since
when, the last error: wrong credentials, a bucket that is missing or read-only, a clock that is off) and `segments`:
every local segment with its reason.

    stratalog tier status --bootstrap-server 127.0.0.1:9092           # needs no web address
    stratalog tier status --web http://127.0.0.1:8080 --topic orders --json
    stratalog tier status --data-dir D                                # of a broker that is not running

A terminal gets a table, a pipe lines with tabs and sizes in bytes: partition, reason, local bytes, remote bytes, log
start offset, local log start offset, last remote offset, log end offset, lag in bytes and segments, the reason in
words, errors. Exit code 0: nothing is failing; 1: something is; 2: wrong usage, or nobody answers. From the files alone
open transactions, the quota and failures are not known, and a segment is as old as its file.

| reason | what it says |
|---|---|
"""

_ABSENT = """\
## Kafka's metrics that are not here

Everything else that a broker of Apache Kafka 4.4.0 registers in JMX:

| MBean | why not |
|---|---|
"""


def page() -> str:
    """The whole page."""
    from stratalog.web.server import CONNECTION_S, CONNECTIONS_MAX

    metrics: list[Metric[Any]] = [*engine_metrics.METRICS, *broker_metrics.METRICS]
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
    rows = ["| name | labels | type | what it says |\n", "|---|---|---|---|\n"]
    for metric in sorted(metrics, key=lambda metric: metric.name):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {labels} | {metric.kind.value} | {metric.help} |\n")
    return "".join(rows)


def main(arguments: list[str]) -> int:
    """Print the page, or compare it with a file: 1 when that is another one."""
    if arguments[:1] != ["--check"]:
        print(page(), end="")
        return 0
    path = Path(arguments[1])
    if path.read_text(encoding="utf-8") == page():
        return 0
    print(
        f"{path} is not what the declarations say: python -m stratalog.web.documentation > {path}",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
