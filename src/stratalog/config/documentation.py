"""`docs/configuration.md`, written from the declarations of the keys.

python -m stratalog.config.documentation > docs/configuration.md
"""

from __future__ import annotations

from dataclasses import replace

from stratalog.config.broker import BROKER_KEYS, INITIAL_METADATA_VERSION
from stratalog.config.keys import INT_MAX, LONG_MAX, ConfigKey, ConfigRegistry
from stratalog.config.metadata_version import INITIAL_LEVEL, LARGE_SEGMENTS_LEVEL, LEVEL_MAX, level_name
from stratalog.config.segment_size import SEGMENT_BYTES_MIN
from stratalog.config.topic import TOPIC_KEYS, LogConfig, index_size_needed

_HEAD = """\
# Configuration

Names, types and defaults are Apache Kafka 4.4's; keys that begin with `stratalog.` are this project's own. A key that
Kafka has and this page has not is accepted, so that a `server.properties` can be used as it is, and named in the
broker's log. `stratalog serve --config server.properties` alone is enough; options on the command line win over the
file. What the file asks for safety and cannot be kept here refuses the start, by a line that names file and key:
listeners other than PLAINTEXT, TLS and SASL settings, an authorizer, policies, limits of clients, a quorum of several
controllers. Kafka's own file of a single node can be used as it is: the listener of its controller is not opened.
[COMPATIBILITY.md](COMPATIBILITY.md) says what else there is.

Written from the declarations in `src/stratalog/config`; `python -m stratalog.config.documentation` prints it.
"""

_GUIDANCE = """\
## Segments past 2 GiB

`segment.bytes` and `log.segment.bytes` are longs (KIP-1333). Their range depends on the finalized level of
`metadata.version`:

| level | range | offset indexes of new segments |
|---|---|---|
| below {large}; a new data directory is at {initial} | {low} to {int_max} | 8 bytes an entry, as in released Kafka |
| from {large} on | {low} to {long_max} | 12 bytes an entry |

A value out of the range in force is refused with INVALID_CONFIG, at a start before anything is written.

    stratalog features describe --bootstrap-server 127.0.0.1:9092
    stratalog features upgrade --bootstrap-server 127.0.0.1:9092 --release-version 4.4
    stratalog serve --data-dir D --set {initial_key}=32     # a new directory only

`--release-version 4.4` finalizes the newest level of that release, {newest}, as Kafka's tool does; `--feature
metadata.version=32` finalizes exactly that one. An upgrade is in force at once and for good: lower levels, and released
Kafka, do not know the format, so there is no way back below 32. Segments that are there keep their indexes, which are
read as they are.

**Index size.** A segment is also rolled when one of its indexes is full. An index has an entry of 12 bytes for each
`index.interval.bytes` of its segment, so `segment.index.bytes` (`log.index.size.max.bytes`) has to be at least
`segment.bytes / index.interval.bytes * 12`:

| segment.bytes | index.interval.bytes | segment.index.bytes, at least |
|---|---|---|
{index_sizes}
The default of {index_default} is enough for {index_enough} at an interval of 4096. The broker warns, at a start and
when a setting is changed, of an index that is too small, with the size that it should have.

## Small segments

`min.topic.segment.ms` and `min.topic.segment.bytes` (KIP-760) are the operator's minimums for what is set on topics.
CreateTopics, AlterConfigs and IncrementalAlterConfigs below them get INVALID_CONFIG. They may be changed while the
broker runs, for one broker or for all. A topic that is below a later minimum keeps what it has, may be changed in other
keys by either API, and is named in a warning at every start. `segment.bytes` is {low} at least in any case, so a
smaller `min.topic.segment.bytes` has no effect, and the broker says so. Broker-wide defaults (`log.roll.ms`,
`log.segment.bytes`) are the operator's own matter.

## What is set while the broker runs

A change over the wire is checked by itself, with what else is set for the broker, and with every topic that inherits
it; then it is stored, and then it is in force. One that does not fit is refused with INVALID_CONFIG or INVALID_REQUEST,
naming a topic where it is one that does not go together with it, and nothing is stored. Plugins' keys (`rsm.config.`,
`rlmm.config.`) come from the file and the command line alone.

What is stored counts over `--config` and `--set`, as in Kafka. If those, or a newer version's rules, are in conflict
with it later, the broker starts all the same and names the conflict in a warning: a dynamic setting of the broker that
does not fit does not count, a topic keeps the configuration that it last had without a conflict, and where none is
known what is in conflict does not count and nothing of the topic is deleted or compacted. Only what does not fit within
the file and the command line themselves refuses a start.
"""

_GUIDED_SIZES = (1024**3, 4 * 1024**3, 8 * 1024**3, 64 * 1024**3)

_LIMITS = {LONG_MAX: "no limit", INT_MAX: "no limit", 1.7976931348623157e308: "no limit"}


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            _HEAD,
            _guidance(),
            "## Topics\n",
            (
                "Set with CreateTopics or IncrementalAlterConfigs; in force at once. Without a value, the broker key "
                "counts.\n"
            ),
            _table(TOPIC_KEYS, with_broker_key=True),
            "## Broker\n",
            "Set with `--config FILE` and `--set KEY=VALUE`. Dynamic ones also with IncrementalAlterConfigs, for this",
            "broker or for all.\n",
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
    rows = [f"| key | type | default | what it says | {last} |", "|---|---|---|---|---|"]
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
