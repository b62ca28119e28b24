"""`docs/configuration.md`, written from the declarations of the keys.

python -m stratalog.config.documentation > docs/configuration.md
"""

from __future__ import annotations

from dataclasses import replace

from stratalog.config.broker import BROKER_KEYS
from stratalog.config.broker_keys import INITIAL_METADATA_VERSION
from stratalog.config.group import GROUP_KEYS
from stratalog.config.keys import INT_MAX, LONG_MAX, ConfigKey, ConfigRegistry
from stratalog.config.metadata_version import INITIAL_LEVEL, LARGE_SEGMENTS_LEVEL, LEVEL_MAX, level_name
from stratalog.config.segment_size import SEGMENT_BYTES_MIN
from stratalog.config.topic import TOPIC_KEYS, LogConfig, index_size_needed

_HEAD = """\
# Configuration

Names, types and defaults are those of Apache Kafka 4.4. Keys that begin with `stratalog.` are this project's own.

A `server.properties` of Kafka can be used as it is: `stratalog serve --config server.properties` is enough. Options on
the command line take precedence over the file. A key of Kafka that is not on this page is accepted and named in the
broker's log. A safety setting that this broker does not support stops the start, with one line that names the file and
the key: keys that cannot be read, Kerberos, an authorizer of another class, policies, quotas by a class, a quorum of
several controllers. The file of a single Kafka node works: the listener of its controller is not opened.
[COMPATIBILITY.md](COMPATIBILITY.md) lists further differences.

This page is generated from the declarations in `src/stratalog/config`. To print it, run
`python -m stratalog.config.documentation`.
"""

_GUIDANCE = """\
## Segments past 2 GiB

`segment.bytes` and `log.segment.bytes` are longs (KIP-1333). Their range depends on the finalized level of
`metadata.version`:

| level | range | offset indexes of new segments |
|---|---|---|
| below {large}; a new data directory is at {initial} | {low} to {int_max} | 8 bytes an entry, as in released Kafka |
| from {large} on | {low} to {long_max} | 12 bytes an entry |

A value outside the range is refused with INVALID_CONFIG. At startup it is refused before anything is written.

    stratalog features describe --bootstrap-server 127.0.0.1:9092
    stratalog features upgrade --bootstrap-server 127.0.0.1:9092 --release-version 4.4
    stratalog serve --data-dir D --set {initial_key}=32     # a new directory only

`--release-version 4.4` finalizes the newest level of that release, {newest}, as Kafka's tool does. `--feature
metadata.version=32` finalizes exactly that level. An upgrade is in force at once and cannot be undone: lower levels,
and released Kafka, cannot read the format. Existing segments keep their indexes, which stay readable.

**Index size.** A segment is also rolled when one of its indexes is full. An index has an entry of 12 bytes for each
`index.interval.bytes` of its segment. `segment.index.bytes` (`log.index.size.max.bytes`) must therefore be at least
`segment.bytes / index.interval.bytes * 12`:

| segment.bytes | index.interval.bytes | segment.index.bytes, at least |
|---|---|---|
{index_sizes}
The default of {index_default} is enough for {index_enough} at an interval of 4096. At startup, and when a setting
changes, the broker warns of an index that is too small and names the size that it needs.

## Small segments

`min.topic.segment.ms` and `min.topic.segment.bytes` (KIP-760) are the operator's minimums for topic settings.
CreateTopics, AlterConfigs and IncrementalAlterConfigs with values below them get INVALID_CONFIG. The minimums can be
changed while the broker runs, for one broker or for all. A topic that is below a later minimum keeps its value and is
named in a warning at each startup; its other keys can still be changed. `segment.bytes` must be at least {low} in any
case, so a smaller `min.topic.segment.bytes` has no effect, and the broker logs a warning. The minimums do not apply to
broker-wide defaults (`log.roll.ms`, `log.segment.bytes`).

## Changes while the broker runs

A change over the wire is checked first: by itself, together with the other settings of the broker, and with every topic
that inherits it. Then it is stored, and then it is in force. A change that fails a check is refused with INVALID_CONFIG
or INVALID_REQUEST, and nothing is stored. The answer names the topic that conflicts. In a cluster topics are not
checked: the controllers store the change, and each broker logs a topic in conflict and does not apply the conflicting
settings. Keys of plugins (`rsm.config.`, `rlmm.config.`) can only be set in the file and on the command line.

Stored settings take precedence over `--config` and `--set`, as in Kafka. If they conflict later with the file, the
command line, or the rules of a newer version, the broker starts all the same and warns. A dynamic broker setting that
conflicts is ignored. A topic keeps the last configuration that had no conflict; if there is none, the conflicting
settings are ignored, and nothing of the topic is deleted or compacted. Only conflicts within the file and the command
line stop a start.
"""

_GUIDED_SIZES = (1024**3, 4 * 1024**3, 8 * 1024**3, 64 * 1024**3)

_LIMITS = {LONG_MAX: "no limit", INT_MAX: "no limit", 1.7976931348623157e308: "no limit"}


def page() -> str:
    return "\n".join(
        [
            _HEAD,
            _guidance(),
            "## Topics\n",
            "Set them with CreateTopics or IncrementalAlterConfigs. They are in force at once. A topic without a value",
            "uses the broker key.\n",
            _table(TOPIC_KEYS, with_broker_key=True),
            "## Groups\n",
            "Set them with IncrementalAlterConfigs (`stratalog configs alter --entity-type groups`), also for groups",
            "that are still to come. A group without a value uses the broker key. A value has to be within the",
            "broker's minimums and maximums (`group.consumer.min.session.timeout.ms`, ...); one that later ones leave",
            "outside counts as the nearest of them. Keys of share and streams groups are kept for them.\n",
            _table(GROUP_KEYS, with_broker_key=True),
            "## Broker\n",
            "Set them with `--config FILE` and `--set KEY=VALUE`. Dynamic keys can also be set with",
            "IncrementalAlterConfigs, for one broker or for all.\n",
            _table(BROKER_KEYS, with_broker_key=False),
        ]
    )


def _guidance() -> str:
    default = LogConfig()
    rows = []
    for size in _GUIDED_SIZES:
        needed = index_size_needed(replace(default, segment_bytes=size))
        rows.append(f"| {size} ({_binary(size)}) | {default.index_interval_bytes} | {needed} ({_binary(needed)}) |\n")
    enough = default.segment_bytes * default.segment_index_bytes // index_size_needed(default)
    return _GUIDANCE.format(
        large=_level(LARGE_SEGMENTS_LEVEL),
        initial=_level(INITIAL_LEVEL),
        newest=_level(LEVEL_MAX),
        initial_key=INITIAL_METADATA_VERSION,
        low=SEGMENT_BYTES_MIN,
        int_max=INT_MAX,
        long_max=LONG_MAX,
        index_sizes="".join(rows),
        index_default=_binary(default.segment_index_bytes),
        index_enough=f"{enough / 1024**3:.1f} GiB",
    )


def _level(level: int) -> str:
    return f"{level} ({level_name(level)})"


def _binary(size: int) -> str:
    return f"{size // 1024**3} GiB" if size >= 1024**3 else f"{size // 1024**2} MiB"


def _table(keys: ConfigRegistry, *, with_broker_key: bool) -> str:
    last = "broker key" if with_broker_key else "dynamic"
    rows = [f"| key | type | default | meaning | {last} |", "|---|---|---|---|---|"]
    for key in sorted(keys, key=lambda key: (key.name.startswith("stratalog."), key.name)):
        extra = f"`{key.broker_key}`" if key.broker_key else ("yes" if key.dynamic and not with_broker_key else "")
        doc = f"{key.doc} **No effect here**: {key.no_effect}." if key.no_effect else key.doc
        rows.append(f"| `{key.name}` | {key.type.name.lower()} | {_default(key)} | {doc} | {extra} |")
    return "\n".join(rows) + "\n"


def _default(key: ConfigKey) -> str:
    if key.default in _LIMITS:
        return _LIMITS[key.default]
    text = key.render(key.default)
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(page(), end="")
