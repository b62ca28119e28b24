"""`docs/configuration.md`, written from the declarations of the keys.

python -m stratalog.config.documentation > docs/configuration.md
"""

from __future__ import annotations

from stratalog.config.broker import BROKER_KEYS
from stratalog.config.keys import INT_MAX, LONG_MAX, ConfigKey, ConfigRegistry
from stratalog.config.topic import TOPIC_KEYS

_HEAD = """\
# Configuration

Names, types and defaults are Apache Kafka 4.4's; keys that begin with `stratalog.` are this project's own. A key that Kafka
has and this page has not is accepted, so that a `server.properties` can be used as it is, and named in the broker's log.
Keys of what is not there yet (compaction, transactions, quotas) are checked and shown, and nothing acts on them:
[COMPATIBILITY.md](COMPATIBILITY.md) says what that is.

Written from the declarations in `src/stratalog/config`; `python -m stratalog.config.documentation` prints it.
"""

_LIMITS = {LONG_MAX: "no limit", INT_MAX: "no limit", 1.7976931348623157e308: "no limit"}


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            _HEAD,
            "## Topics\n",
            "Set with CreateTopics or IncrementalAlterConfigs; in force at once. Without a value, the broker key counts.\n",
            _table(TOPIC_KEYS, with_broker_key=True),
            "## Broker\n",
            "Set with `--config FILE` and `--set KEY=VALUE`. Dynamic ones also with IncrementalAlterConfigs, for this",
            "broker or for all.\n",
            _table(BROKER_KEYS, with_broker_key=False),
        ]
    )


def _table(keys: ConfigRegistry, *, with_broker_key: bool) -> str:
    last = "broker key" if with_broker_key else "dynamic"
    rows = [f"| key | type | default | what it says | {last} |", "|---|---|---|---|---|"]
    for key in sorted(keys, key=lambda key: (key.name.startswith("stratalog."), key.name)):
        extra = (
            f"`{key.broker_key}`"
            if key.broker_key
            else ("yes" if key.dynamic and not with_broker_key else "")
        )
        rows.append(f"| `{key.name}` | {key.type.name.lower()} | {_default(key)} | {key.doc} | {extra} |")
    return "\n".join(rows) + "\n"


def _default(key: ConfigKey) -> str:
    if key.default in _LIMITS:
        return _LIMITS[key.default]
    text = key.render(key.default)
    return f"`{text}`" if text else ""


if __name__ == "__main__":
    print(page(), end="")
