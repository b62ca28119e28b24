"""Find topic settings that have no effect, from a directory's metadata or from brokers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stratalog.cli.doctor.diagnosis import Diagnosis, command
from stratalog.cli.out import counted
from stratalog.config import (
    TOPIC_KEYS,
    BrokerConfig,
    IgnoredSetting,
    LogConfig,
    ignored_settings,
    joins_cluster,
)
from stratalog.errors import InvalidConfigError
from stratalog.jobs import Severity
from stratalog.wire import ApiKey
from stratalog.wire.client import Client, Cluster, RefusedError, UnreachableError, check

_TOPIC: Final = 2
_BROKER: Final = 4
_SET_ON_THE_TOPIC: Final = 1
_TIER: Final = "remote.log.storage.system.enable"
#: A setting that only brokers of stratalog have.
_OWN_KEY: Final = "stratalog.large.segments"
_TOPICS_A_REQUEST: Final = 200
#: Number of topics listed individually.
_NAMED_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """A topic with its own settings and the effective values."""

    name: str
    own: Mapping[str, str]
    config: LogConfig


def of_document(document: Mapping[str, Any], broker: BrokerConfig | None, where: str) -> list[Diagnosis]:
    """Diagnose the topics of a broker's metadata. `broker` is its configuration file, None if unknown."""
    known = broker or BrokerConfig({})
    # Those of all brokers have the empty name, which sorts before the broker's own.
    dynamic = [configs for _, configs in sorted(document["brokerConfigs"].items())]
    with_dynamic = known.with_overrides({name: value for configs in dynamic for name, value in configs.items()})
    topics = []
    for each in document["topics"]:
        try:
            config = LogConfig.from_properties(each["configs"], with_dynamic)
        except InvalidConfigError:  # reported by the check of the document
            continue
        topics.append(TopicSettings(each["name"], each["configs"], config))
    return _diagnoses(
        topics,
        where,
        is_ours_alone=not joins_cluster(known.properties),
        has_tier=None if broker is None else bool(with_dynamic[_TIER]),
        bootstrap_server=None,
    )


def of_cluster(cluster: Cluster, bootstrap_server: str) -> list[Diagnosis]:
    """Query brokers for the settings of all topics that are not internal. Raises RefusedError or UnreachableError."""
    names = sorted(name for name, each in cluster.topics().items() if not each.is_internal)
    brokers = _broker_settings(cluster)
    tier = brokers.get(_TIER)
    return _diagnoses(
        [
            each
            for at in range(0, len(names), _TOPICS_A_REQUEST)
            for each in _described(cluster.any, names[at : at + _TOPICS_A_REQUEST])
        ],
        bootstrap_server,
        is_ours_alone=_OWN_KEY in brokers and len(cluster.nodes()) == 1,
        has_tier=None if tier is None else tier == "true",
        bootstrap_server=bootstrap_server,
    )


def _broker_settings(cluster: Cluster) -> dict[str, str | None]:
    """Return the settings of the first broker that answers: a broker only describes itself."""
    for broker in sorted(cluster.nodes()):
        wanted = {"resource_type": _BROKER, "resource_name": str(broker), "configuration_keys": [_OWN_KEY, _TIER]}
        try:
            (answer,) = cluster.node(broker).call(ApiKey.DESCRIBE_CONFIGS, (1, 4), resources=[wanted]).results
        except UnreachableError:
            continue
        return {str(each.name): each.value for each in answer.configs or ()}
    return {}


def _described(client: Client, names: Sequence[str]) -> Iterator[TopicSettings]:
    keys = [key.name for key in TOPIC_KEYS]
    wanted = [{"resource_type": _TOPIC, "resource_name": each, "configuration_keys": keys} for each in names]
    refused: RefusedError | None = None
    for answer in client.call(ApiKey.DESCRIBE_CONFIGS, (1, 4), resources=wanted).results:
        try:
            check(answer.error_code, answer.error_message, f"topic {answer.resource_name}")
        except RefusedError as error:
            refused = error
            continue
        entries = [each for each in answer.configs or () if each.value is not None]
        own = {str(each.name): str(each.value) for each in entries if int(each.config_source) == _SET_ON_THE_TOPIC}
        try:
            config = LogConfig.from_values(TOPIC_KEYS.parse({str(each.name): each.value for each in entries}), False)
        except InvalidConfigError:  # a value of another release
            continue
        yield TopicSettings(str(answer.resource_name), own, config)
    if refused is not None:
        raise refused


def _diagnoses(
    topics: Iterable[TopicSettings],
    where: str,
    *,
    is_ours_alone: bool,
    has_tier: bool | None,
    bootstrap_server: str | None,
) -> list[Diagnosis]:
    """Return one diagnosis per topic, first those whose retention differs from their settings."""
    found = []
    for topic in topics:
        ignored = list(ignored_settings(topic.own, topic.config, is_ours_alone=is_ours_alone, has_tier=has_tier))
        if ignored:
            found.append(_diagnosis(topic.name, ignored, where, bootstrap_server))
    found.sort(key=lambda each: -each.severity)
    if len(found) <= _NAMED_MAX:
        return found
    more = found[_NAMED_MAX:]
    said = f"{counted(len(more), 'more topic')} with settings that have no effect"
    mend = f"fix the listed topics and run doctor again; all settings: {_command(bootstrap_server, 'describe')}"
    return [*found[:_NAMED_MAX], Diagnosis(more[0].severity, where, more[0].kind, said, mend)]


def _diagnosis(name: str, ignored: list[IgnoredSetting], where: str, bootstrap_server: str | None) -> Diagnosis:
    is_surprising = any(each.is_surprising for each in ignored)
    keys = ",".join(each.key for each in ignored)
    mend = _command(bootstrap_server, "alter", "--entity-name", name, "--delete-config", keys)
    return Diagnosis(
        Severity.WARNING if is_surprising else Severity.NOTE,
        where,
        "topic-setting-without-effect",
        f"topic {name}: {'; '.join(map(str, ignored))}",
        mend if bootstrap_server is not None else f"with the broker running: {mend}",
    )


def _command(bootstrap_server: str | None, *words: str) -> str:
    verb, *rest = words
    server = [] if bootstrap_server is None else ["-b", bootstrap_server]
    return command("configs", verb, "--entity-type", "topics", *rest, *server)
