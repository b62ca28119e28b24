"""Broker configuration: the keys, and `BrokerConfig`, a read-only mapping of their typed values.

Names, types and defaults are Apache Kafka 4.4.0's; own keys begin with `stratalog.`. A key that this version does not
know is kept and reported, so that a `server.properties` of a real broker can be used as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stratalog.config.group_limits import check_group_limits
from stratalog.config.keys import (
    AUTHORIZER,
    INT_MAX,
    LONG_MAX,
    STANDARD_AUTHORIZER,
    ConfigKey,
    ConfigRegistry,
    ConfigType,
    ListOf,
    above,
    at_least,
    between,
    host_numbers,
    invalid,
    one_of,
    one_of_any_case,
)
from stratalog.config.metadata_version import INITIAL_LEVEL, LEVEL_MAX, LEVEL_MIN
from stratalog.config.properties_file import parse_properties
from stratalog.config.segment_size import check_segment_bytes
from stratalog.config.topic import PRODUCE_VALIDATION, TOPIC_KEYS

__all__ = [
    "BROKER_KEYS",
    "INITIAL_METADATA_VERSION",
    "METADATA_TOPIC_KEYS",
    "BrokerConfig",
    "parse_properties",
]

_INT, _LONG, _BOOL, _STR, _LIST, _DOUBLE, _SHORT, _PASSWORD = (
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.LIST,
    ConfigType.DOUBLE,
    ConfigType.SHORT,
    ConfigType.PASSWORD,
)


def _key(
    name: str,
    type_: ConfigType,
    default: Any,
    doc: str,
    validator: Any = None,
    *,
    dynamic: bool = False,
    coarser: tuple[tuple[str, int], ...] = (),
    no_effect: str = "",
) -> ConfigKey:
    return ConfigKey(name, type_, default, doc, validator, dynamic, coarser=coarser, no_effect=no_effect)


#: Where metrics go that clients push.
CLIENT_METRICS_SINK = "stratalog.client.metrics"
#: The level that a new data directory starts at.
INITIAL_METADATA_VERSION = "stratalog.initial.metadata.version"
SLOW_CALLBACK_MS = "stratalog.loop.slow.callback.ms"

_HOUR_MS = 60 * 60 * 1000

ONE_REPLICA = "a broker by itself keeps one replica"
NO_OTHERS = "a broker by itself connects to no other"

#: Coarser spellings of a time that yield to the one in milliseconds.
_ASSIGNORS = "org.apache.kafka.coordinator.group.assignor"

_COARSER = {
    "log.retention.ms": (("log.retention.minutes", 60_000), ("log.retention.hours", _HOUR_MS)),
    "log.roll.ms": (("log.roll.hours", _HOUR_MS),),
    "log.roll.jitter.ms": (("log.roll.jitter.hours", _HOUR_MS),),
    "log.flush.interval.ms": (("log.flush.scheduler.interval.ms", 1),),
}


def _from_topic_keys() -> list[ConfigKey]:
    """Each topic key's broker-wide default, under its broker name; all of them dynamic."""
    return [
        ConfigKey(
            key.broker_key,
            key.type,
            key.default,
            f"Default of topics' {key.name}. {key.doc}",
            key.validator,
            dynamic=True,
            coarser=_COARSER.get(key.broker_key, ()),
            no_effect=key.no_effect,
        )
        for key in TOPIC_KEYS
        if key.broker_key
    ]


BROKER_KEYS = ConfigRegistry(
    [
        *_from_topic_keys(),
        _key("node.id", _INT, 1, "This node's id.", at_least(0)),
        _key("broker.rack", _STR, None, "The rack of this broker."),
        _key("broker.id", _INT, -1, "An older name of node.id. If both are set, they must be equal."),
        _key("log.dirs", _LIST, (), "The log directories. --data-dir takes precedence."),
        _key("log.dir", _LIST, (), "Like log.dirs, which takes precedence."),
        _key("listeners", _STR, "PLAINTEXT://:9092",
             "The addresses to listen on, as NAME://HOST:PORT, separated by commas. --listen takes precedence; the "
             "default is 127.0.0.1:9092. Listeners of controller.listener.names are not opened. A key of one listener "
             "is written listener.name.<name>.<key>, with the name in small letters."),
        _key("advertised.listeners", _STR, None,
             "The addresses that clients connect to. A client gets the address of the listener that it came in by. "
             "Ignored with --listen."),
        _key("inter.broker.listener.name", _STR, None,
             "The listener that max.connections does not count against: it closes the longest idle connection of "
             "another one instead. By default, that of security.inter.broker.protocol."),
        _key("security.inter.broker.protocol", _STR, "PLAINTEXT",
             "Names the listener of inter.broker.listener.name by its protocol.",
             one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
        _key("listener.security.protocol.map", _STR,
             "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
             "Security protocol of each listener. Only PLAINTEXT is supported."),
        _key("controller.listener.names", _LIST, (),
             "Names of the controllers' listeners. They are not opened. A broker of a cluster reaches the controllers "
             "by the protocol and settings of the first."),
        _key("stratalog.cluster.preview", _BOOL, False,
             "Whether process.roles=broker joins a cluster. A preview: see how-to/join_a_cluster.md for what is left "
             "out."),
        _key("stratalog.large.segments", _BOOL, False,
             "Whether this broker of a cluster accepts segments larger than 2 GiB (KIP-1333) and registers that. "
             "A topic can have such segments, sized by log.segment.bytes, if all brokers with a replica accept them."),
        _key("process.roles", _LIST, (),
             "broker joins a cluster (see stratalog.cluster.preview). broker,controller is a node by itself, which is "
             "the default."),
        _key("controller.quorum.bootstrap.servers", _LIST, (),
             "Addresses of the cluster's controllers, as HOST:PORT. Only with process.roles=broker."),
        _key("controller.quorum.voters", _LIST, (),
             "The controllers of a static quorum, as ID@HOST:PORT. Only with process.roles=broker."),
        _key("controller.quorum.fetch.timeout.ms", _INT, 2000,
             "How long a controller may take to answer before another is asked.", at_least(1)),
        _key("controller.socket.timeout.ms", _INT, 30_000,
             "How long a controller may take to answer a request (heartbeats and fetches have less).", at_least(1)),
        _key("initial.broker.registration.timeout.ms", _INT, 60_000,
             "How long a broker tries to find the controllers and to register before it gives up.", at_least(0)),
        _key("broker.heartbeat.interval.ms", _INT, 2000, "The time between heartbeats to the controller.", at_least(1)),
        _key("auto.create.topics.enable", _BOOL, True,
             "Whether a topic is created when a client asks for it and it does not exist."),
        _key("num.partitions", _INT, 1,
             "Number of partitions of a topic that is created without a count.", at_least(1)),
        _key("default.replication.factor", _INT, 1,
             "Number of replicas of a topic that is created without a count.", at_least(1)),
        _key("delete.topic.enable", _BOOL, True, "Whether topics can be deleted."),
        _key("log.retention.minutes", _INT, None, "Like log.retention.ms, in minutes."),
        _key("log.retention.hours", _INT, 168, "Like log.retention.ms, in hours."),
        _key("log.roll.hours", _INT, 168, "Like log.roll.ms, in hours.", at_least(1)),
        _key("log.roll.jitter.hours", _INT, 0, "Like log.roll.jitter.ms, in hours.", at_least(0)),
        # Replication, in a cluster.
        _key("num.replica.fetchers", _INT, 1, "Threads that fetch from each leader.", at_least(1), dynamic=True),
        _key("replica.selector.class", _STR, None,
             "With the rack-aware selector, a consumer that names its rack (client.rack) is sent to a follower in "
             "there, if one is in sync. Without, to the leader.",
             one_of("", "org.apache.kafka.common.replica.RackAwareReplicaSelector")),
        _key("leader.replication.throttled.rate", _LONG, LONG_MAX,
             "Bytes per second that go to followers which are not in sync, of the replicas that a topic's "
             "leader.replication.throttled.replicas names.", at_least(0), dynamic=True),
        _key("follower.replication.throttled.rate", _LONG, LONG_MAX,
             "Bytes per second that replicas fetch which are not in sync, of those that a topic's "
             "follower.replication.throttled.replicas names.", at_least(0), dynamic=True),
        _key("replication.quota.window.num", _INT, 11,
             "Windows that the rates of throttled replication are measured over.", at_least(1)),
        _key("replication.quota.window.size.seconds", _INT, 1, "How long each of these is.", at_least(1)),
        _key("replica.fetch.backoff.ms", _INT, 1_000,
             "How long a follower waits after an error before it asks again.", at_least(0)),
        _key("replica.fetch.max.bytes", _INT, 1024**2,
             "Bytes of a partition that a follower asks for; a batch that is larger comes whole.", at_least(0)),
        _key("replica.fetch.min.bytes", _INT, 1, "Bytes that a leader waits for before it answers a follower."),
        _key("replica.fetch.response.max.bytes", _INT, 10 * 1024**2,
             "Bytes that a follower asks for in all.", at_least(0)),
        _key("replica.fetch.wait.max.ms", _INT, 500, "The longest that a leader waits for more."),
        _key("replica.socket.timeout.ms", _INT, 30_000,
             "How long another broker may take to answer before the connection counts as lost.", at_least(1)),
        _key("replica.lag.time.max.ms", _LONG, 30_000,
             "A follower that has not caught up for this time is removed from the in-sync replicas."),
        _key("log.retention.check.interval.ms", _LONG, 300_000, "How often retention is applied.", at_least(1)),
        _key("log.initial.task.delay.ms", _LONG, 30_000,
             "Delay before the first background tasks after startup.", at_least(0)),
        _key("log.flush.scheduler.interval.ms", _LONG, LONG_MAX, "How often logs are checked for a flush."),
        _key("log.flush.offset.checkpoint.interval.ms", _INT, 60_000,
             "How often recovery points are written to disk.", at_least(0)),
        _key("log.flush.start.offset.checkpoint.interval.ms", _INT, 60_000,
             "How often log start offsets are written to disk.", at_least(0)),
        _key("num.recovery.threads.per.data.dir", _INT, 2,
             "Threads that load the logs of one directory.", at_least(1), dynamic=True),
        _key("min.topic.segment.ms", _LONG, 3_600_000,
             "The minimum value for topic configuration segment.ms (KIP-760).", at_least(0), dynamic=True),
        _key("min.topic.segment.bytes", _INT, 1_048_576,
             "The minimum value for topic configuration segment.bytes (KIP-760). A value below 1048576 has no effect, "
             "because segment.bytes must be at least 1048576.", at_least(0), dynamic=True),
        # Requests and connections.
        _key("socket.request.max.bytes", _INT, 100 * 1024**2, "The largest request that is accepted.", at_least(1)),
        _key("socket.send.buffer.bytes", _INT, 102_400, "SO_SNDBUF. -1 keeps the system's default."),
        _key("socket.receive.buffer.bytes", _INT, 102_400, "SO_RCVBUF. -1 keeps the system's default."),
        _key("socket.listen.backlog.size", _INT, 50, "Pending connections.", at_least(1)),
        _key("connections.max.idle.ms", _LONG, 600_000, "How long a connection may be idle before it is closed."),
        _key("max.connections", _INT, INT_MAX,
             "Largest number of connections at the same time; of a listener under its prefix.", at_least(0),
             dynamic=True),
        _key("max.connections.per.ip", _INT, INT_MAX,
             "Largest number of connections of one address. More are closed at once.", at_least(0), dynamic=True),
        _key("max.connections.per.ip.overrides", _LIST, (),
             "Other limits of single addresses or host names: host:number, separated by commas.", host_numbers,
             dynamic=True),
        _key("max.connection.creation.rate", _INT, INT_MAX,
             "Largest number of new connections per second; of a listener under its prefix. More wait.", at_least(0),
             dynamic=True),
        _key("fetch.max.bytes", _INT, 55 * 1024**2, "The largest fetch response.", at_least(1024)),
        _key("queued.max.request.bytes", _LONG, -1,
             "Memory for partly received requests, over all connections. Beyond it, no more of large requests is read "
             "until there is room. The same amount bounds answers that clients do not read. -1 means a "
             "quarter of the memory of the machine or container."),
        _key("queued.max.requests", _INT, 500,
             "Largest number of queued requests.",
             at_least(1), no_effect="requests are not queued: a connection's next request is read when there is room"),
        _key("max.incremental.fetch.session.cache.slots", _INT, 1000,
             "Largest number of fetch sessions (KIP-227). A client without one sends full requests.", at_least(0)),
        # SASL.
        _key("sasl.enabled.mechanisms", _LIST, ("GSSAPI",),
             "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's default, GSSAPI, is not supported. The keys of "
             "a mechanism, and the sasl.jaas.config with the users of PLAIN, begin with "
             "listener.name.<name>.<mechanism>, in small letters."),
        _key("sasl.server.max.receive.size", _INT, 524_288,
             "The largest message of a client that has not authenticated.", at_least(1)),
        _key("sasl.oauthbearer.jwks.endpoint.url", _STR, None,
             "URL of the keys that sign the tokens of OAUTHBEARER: file:, https: or http:."),
        _key("sasl.oauthbearer.jwks.endpoint.refresh.ms", _LONG, 3_600_000, "How often they are read again.",
             at_least(1)),
        _key("sasl.oauthbearer.expected.audience", _LIST, (), "Accepted audiences. A token must name one of them."),
        _key("sasl.oauthbearer.expected.issuer", _STR, None, "The issuer that a token names."),
        _key("sasl.oauthbearer.allow.unverified.audience", _BOOL, False,
             "Whether tokens for anybody are taken when no audience is expected; else the broker does not start."),
        _key("sasl.oauthbearer.allow.unverified.issuer", _BOOL, False,
             "Whether tokens of any issuer are taken when none is expected; else the broker does not start."),
        _key("sasl.oauthbearer.sub.claim.name", _STR, "sub", "The claim that holds the name of the user."),
        _key("sasl.oauthbearer.clock.skew.seconds", _INT, 30, "By how much clocks may differ.", at_least(0)),
        _key("sasl.mechanism.inter.broker.protocol", _STR, "GSSAPI", "Mechanism of the brokers among themselves.",
             no_effect=NO_OTHERS),
        _key("sasl.mechanism.controller.protocol", _STR, "GSSAPI", "Mechanism of brokers at controllers."),
        _key("connections.max.reauth.ms", _LONG, 0,
             "How long a client that has authenticated may go on before it does so again (KIP-368). 0 means for ever.",
             at_least(0)),
        _key("connection.failed.authentication.delay.ms", _INT, 100,
             "How long the answer to a failed authentication, and the end of the connection, wait.", at_least(0)),
        _key("delegation.token.secret.key", _PASSWORD, None,
             "The secret by which delegation tokens are made. Without it there are none; another one makes all tokens "
             "void."),
        _key("delegation.token.max.lifetime.ms", _LONG, 604_800_000, "How long a token may be renewed.", at_least(1)),
        _key("delegation.token.expiry.time.ms", _LONG, 86_400_000, "How long a token lasts until it is renewed.",
             at_least(1)),
        _key("delegation.token.expiry.check.interval.ms", _LONG, 3_600_000, "How often expired tokens are removed.",
             at_least(1)),
        # TLS.
        _key("ssl.keystore.type", _STR, "JKS", "PEM or PKCS12. With the default, a file of PKCS12 is read too; Java's "
             "own format is refused."),
        _key("ssl.keystore.location", _STR, None,
             "File with the broker's private key and certificates. Read again when it changes."),
        _key("ssl.keystore.password", _PASSWORD, None, "Password of a PKCS12 file."),
        _key("ssl.keystore.key", _PASSWORD, None, "The private key itself, in PEM."),
        _key("ssl.keystore.certificate.chain", _PASSWORD, None, "The certificates themselves, in PEM."),
        _key("ssl.key.password", _PASSWORD, None, "Password of a private key in PEM."),
        _key("ssl.truststore.type", _STR, "JKS", "PEM or PKCS12, as for ssl.keystore.type."),
        _key("ssl.truststore.location", _STR, None,
             "File with the certificates that sign clients'. Read again when it changes."),
        _key("ssl.truststore.password", _PASSWORD, None, "Password of a PKCS12 file."),
        _key("ssl.truststore.certificates", _PASSWORD, None, "The certificates themselves, in PEM."),
        _key("ssl.client.auth", _STR, "none",
             "Whether clients show a certificate: none, requested or required. Only set under a listener's prefix, it "
             "counts for SASL_SSL too.", one_of("none", "requested", "required")),
        _key("ssl.principal.mapping.rules", _STR, "DEFAULT",
             "How the name of a client's certificate becomes its principal: RULE:pattern/replacement/[LU], separated "
             "by commas; DEFAULT takes it as it is."),
        _key("ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "TLSv1.2, TLSv1.3, or both."),
        _key("ssl.cipher.suites", _LIST, (),
             "Suites by their standard names. By default, those of OpenSSL. Suites of TLSv1.3 are all named or none."),
        # Access.
        _key(AUTHORIZER, _STR, "",
             "What decides who may do what. Empty: everybody may do everything. Else "
             f"{STANDARD_AUTHORIZER}: access rules decide. Another class is refused.", one_of("", STANDARD_AUTHORIZER)),
        _key("super.users", _STR, "", "Who may do everything, whatever the rules say: User:admin;User:other."),
        _key("allow.everyone.if.no.acl.found", _BOOL, False,
             "Whether everybody may do everything to a resource that no rule is about."),
        _key("stratalog.authorizer.log.format", _STR, "text",
             "How decisions are logged by kafka.authorizer.logger: text, as Kafka does, or json, an object a line.",
             one_of("text", "json")),
        # Producers.
        _key("producer.id.expiration.ms", _INT, 86_400_000,
             "How long the state of an idle producer is kept.", at_least(1), dynamic=True),
        _key("producer.id.expiration.check.interval.ms", _INT, 600_000, "How often that is looked at.", at_least(1)),
        # Transactions.
        _key("transactional.id.expiration.ms", _INT, 604_800_000,
             "How long an unused transactional id is kept.", at_least(1)),
        _key("transaction.max.timeout.ms", _INT, 900_000,
             "Longest timeout that a transaction may ask for.", at_least(1)),
        _key("transaction.partition.verification.enable", _BOOL, True,
             "Whether to ask the coordinator before a partition accepts the first batch of a transaction (KIP-890).",
             dynamic=True),
        _key("add.partitions.to.txn.retry.backoff.ms", _INT, 20,
             "How long to wait before the coordinator is asked again, when the transaction before is being ended. In a "
             "cluster.", at_least(1)),
        _key("add.partitions.to.txn.retry.backoff.max.ms", _INT, 100,
             "For how long altogether it is asked again before the client gets an error.", at_least(0)),
        _key("transaction.abort.timed.out.transaction.cleanup.interval.ms", _INT, 10_000,
             "How often to check for transactions that exceed their timeout.", at_least(1)),
        _key("transaction.remove.expired.transaction.cleanup.interval.ms", _INT, 3_600_000,
             "How often to check for expired transactional ids.", at_least(1)),
        _key("transaction.state.log.num.partitions", _INT, 50, "Partitions of __transaction_state.", at_least(1)),
        _key("transaction.state.log.replication.factor", _SHORT, 1,
             "Replicas of __transaction_state.", at_least(1), no_effect=ONE_REPLICA),
        _key("transaction.state.log.min.isr", _INT, 1, "min.insync.replicas of __transaction_state.", at_least(1)),
        _key("transaction.state.log.segment.bytes", _INT, 100 * 1024**2,
             "segment.bytes of __transaction_state.", at_least(1)),
        # Share groups (KIP-932).
        _key("share.coordinator.state.topic.num.partitions", _INT, 50,
             "Partitions of __share_group_state.", at_least(1)),
        _key("share.coordinator.state.topic.replication.factor", _SHORT, 1,
             "Replicas of __share_group_state.", at_least(1), no_effect=ONE_REPLICA),
        _key("share.coordinator.state.topic.min.isr", _SHORT, 1,
             "min.insync.replicas of __share_group_state.", at_least(1)),
        _key("share.coordinator.state.topic.segment.bytes", _INT, 100 * 1024**2,
             "segment.bytes of __share_group_state.", at_least(1)),
        _key("share.coordinator.state.topic.compression.codec", _INT, 0,
             "How batches of __share_group_state are compressed (0: not at all)."),
        _key("share.coordinator.snapshot.update.records.per.snapshot", _INT, 500,
             "After how many updates of a state its next record has all of it.", between(0, 500)),
        _key("errors.deadletterqueue.topic.name.prefix", _STR, "dlq.",
             "What the names of dead-letter topics of share groups begin with (KIP-1191); empty: with anything.",
             dynamic=True),
        _key("errors.deadletterqueue.auto.create.topics.enable", _BOOL, False,
             "Whether a dead-letter topic is made when a share group needs it.", dynamic=True),
        # Groups.
        _key("group.min.session.timeout.ms", _INT, 6_000,
             "Shortest session timeout that a member may have.", at_least(1)),
        _key("group.max.session.timeout.ms", _INT, 1_800_000,
             "Longest session timeout that a member may have.", at_least(1)),
        _key("group.initial.rebalance.delay.ms", _INT, 3_000,
             "How long a new group waits for more members.", at_least(0)),
        _key("group.max.size", _INT, INT_MAX, "Largest number of members of a classic group.", at_least(1)),
        _key("group.coordinator.rebalance.protocols", _LIST, ("classic", "consumer", "streams"),
             "The protocols of groups that clients may use.",
             ListOf("classic", "consumer", "streams", "share")),
        _key("group.consumer.session.timeout.ms", _INT, 45_000,
             "How long a member of a group of the consumer protocol (KIP-848) may be silent.", at_least(1)),
        _key("group.consumer.min.session.timeout.ms", _INT, 45_000,
             "Shortest such time that a group may be given.", at_least(1)),
        _key("group.consumer.max.session.timeout.ms", _INT, 60_000,
             "Longest such time that a group may be given.", at_least(1)),
        _key("group.consumer.heartbeat.interval.ms", _INT, 5_000,
             "How often members of such a group are to send a heartbeat.", at_least(1)),
        _key("group.consumer.min.heartbeat.interval.ms", _INT, 5_000,
             "Shortest such interval that a group may be given.", at_least(1)),
        _key("group.consumer.max.heartbeat.interval.ms", _INT, 15_000,
             "Longest such interval that a group may be given.", at_least(1)),
        _key("group.consumer.assignment.interval.ms", _INT, 1_000,
             "Shortest time between two assignments of such a group.", at_least(0)),
        _key("group.consumer.min.assignment.interval.ms", _INT, 0,
             "Shortest such interval that a group may be given.", at_least(0)),
        _key("group.consumer.max.assignment.interval.ms", _INT, 15_000,
             "Longest such interval that a group may be given.", at_least(0)),
        _key("group.consumer.regex.refresh.interval.ms", _INT, 600_000,
             "How often the regular expressions of such a group are matched again without a reason.",
             at_least(10_000)),
        _key("group.consumer.max.size", _INT, INT_MAX, "Largest number of members of such a group.", at_least(1)),
        _key("group.consumer.assignors", _LIST, ("uniform", "range"),
             "Assignors that such groups may use, the first one by default.",
             ListOf("uniform", "range", *(f"{_ASSIGNORS}.{name}Assignor" for name in ("Uniform", "Range")))),
        _key("group.consumer.migration.policy", _STR, "bidirectional",
             "Whether groups with members may change between the classic and the consumer protocol.",
             one_of_any_case("bidirectional", "upgrade", "downgrade", "disabled")),
        _key("telemetry.max.bytes", _INT, 1_048_576,
             "The most bytes that a client may push of its metrics at once.", at_least(1)),
        _key(CLIENT_METRICS_SINK, _STR, "off",
             "Where metrics of clients go (KIP-714): metrics shows the last ones at /metrics, log writes them "
             "to the log too. With off, brokers do not offer this API to clients.", one_of("off", "metrics", "log")),
        _key("group.streams.session.timeout.ms", _INT, 45_000,
             "How long a member of a streams group (KIP-1071) may be silent.", at_least(1)),
        _key("group.streams.min.session.timeout.ms", _INT, 45_000,
             "Shortest such time that a group may be given.", at_least(1)),
        _key("group.streams.max.session.timeout.ms", _INT, 60_000,
             "Longest such time that a group may be given.", at_least(1)),
        _key("group.streams.heartbeat.interval.ms", _INT, 5_000,
             "How often members of such a group are to send a heartbeat.", at_least(1)),
        _key("group.streams.min.heartbeat.interval.ms", _INT, 5_000,
             "Shortest such interval that a group may be given.", at_least(1)),
        _key("group.streams.max.heartbeat.interval.ms", _INT, 15_000,
             "Longest such interval that a group may be given.", at_least(1)),
        _key("group.streams.assignment.interval.ms", _INT, 1_000,
             "Shortest time between two assignments of such a group.", at_least(0)),
        _key("group.streams.min.assignment.interval.ms", _INT, 0,
             "Shortest such interval that a group may be given.", at_least(0)),
        _key("group.streams.max.assignment.interval.ms", _INT, 15_000,
             "Longest such interval that a group may be given.", at_least(0)),
        _key("group.streams.initial.rebalance.delay.ms", _INT, 3_000,
             "How long a new group of this kind waits for more members.", at_least(0)),
        _key("group.streams.num.standby.replicas", _INT, 0,
             "Standby replicas of each task with state.", at_least(0)),
        _key("group.streams.max.standby.replicas", _INT, 2,
             "Most of them that a group may be given.", at_least(0)),
        _key("group.streams.rack.aware.assignment.tags", _LIST, (),
             "Tags that members are to name, for assignors that spread standby replicas over them."),
        _key("group.streams.max.size", _INT, INT_MAX,
             "Largest number of members of such a group.", at_least(1)),
        _key("group.share.session.timeout.ms", _INT, 45_000,
             "How long a member of a share group (KIP-932) may be silent.", at_least(1)),
        _key("group.share.min.session.timeout.ms", _INT, 45_000,
             "Shortest such time that a group may be given.", at_least(1)),
        _key("group.share.max.session.timeout.ms", _INT, 60_000,
             "Longest such time that a group may be given.", at_least(1)),
        _key("group.share.heartbeat.interval.ms", _INT, 5_000,
             "How often members of such a group are to send a heartbeat.", at_least(1)),
        _key("group.share.min.heartbeat.interval.ms", _INT, 5_000,
             "Shortest such interval that a group may be given.", at_least(1)),
        _key("group.share.max.heartbeat.interval.ms", _INT, 15_000,
             "Longest such interval that a group may be given.", at_least(1)),
        _key("group.share.assignment.interval.ms", _INT, 1_000,
             "Shortest time between two assignments of such a group.", at_least(0)),
        _key("group.share.min.assignment.interval.ms", _INT, 0,
             "Shortest such interval that a group may be given.", at_least(0)),
        _key("group.share.max.assignment.interval.ms", _INT, 15_000,
             "Longest such interval that a group may be given.", at_least(0)),
        _key("group.share.max.size", _INT, 200,
             "Largest number of members of such a group.", between(1, 1000)),
        _key("group.share.initialize.retry.interval.ms", _INT, 30_000,
             "After how long such a group asks again for states of partitions that it did not get; at the least "
             "offsets.commit.timeout.ms.", at_least(1)),
        _key("group.share.record.lock.duration.ms", _INT, 30_000,
             "How long a record that a share group (KIP-932) was handed out stays with its consumer.",
             between(1000, 3_600_000)),
        _key("group.share.min.record.lock.duration.ms", _INT, 15_000,
             "Shortest such time that a group may be given.", between(1000, 30_000)),
        _key("group.share.max.record.lock.duration.ms", _INT, 60_000,
             "Longest such time that a group may be given.", between(30_000, 3_600_000)),
        _key("group.share.delivery.count.limit", _INT, 5,
             "How often a share group is handed out a record at most.", between(2, 10)),
        _key("group.share.min.delivery.count.limit", _INT, 2,
             "Fewest times that a group may be given.", between(2, 5)),
        _key("group.share.max.delivery.count.limit", _INT, 10,
             "Most times that a group may be given.", between(5, 25)),
        _key("group.share.partition.max.record.locks", _INT, 2_000,
             "Records of one partition that may be with the consumers of a share group at once.",
             between(100, 10_000)),
        _key("group.share.min.partition.max.record.locks", _INT, 100,
             "Fewest such records that a group may be given.", between(100, 2_000)),
        _key("group.share.max.partition.max.record.locks", _INT, 4_000,
             "Most such records that a group may be given.", between(2_000, 10_000)),
        _key("group.share.max.share.sessions", _INT, 2_000,
             "Share sessions that the broker keeps at once, one for each consumer.", at_least(1)),
        _key("offset.metadata.max.bytes", _INT, 4096, "The longest metadata of a commit.", at_least(0)),
        _key("offsets.commit.timeout.ms", _INT, 5_000,
             "How long a group's coordinator in a cluster waits for the replicas of __consumer_offsets.", at_least(1)),
        _key("offsets.topic.num.partitions", _INT, 50, "Partitions of __consumer_offsets.", at_least(1)),
        _key("offsets.topic.replication.factor", _SHORT, 1,
             "Replicas of __consumer_offsets.", at_least(1), no_effect=ONE_REPLICA),
        _key("offsets.topic.segment.bytes", _INT, 100 * 1024**2, "segment.bytes of __consumer_offsets.", at_least(1)),
        _key("offsets.topic.compression.codec", _INT, 0, "Codec id of __consumer_offsets.", between(0, 4)),
        _key("offsets.retention.minutes", _INT, 10_080,
             "How long the commits of an empty group are kept.", at_least(1)),
        _key("offsets.retention.check.interval.ms", _LONG, 600_000, "How often that is looked at.", at_least(1)),
        # Tiered storage.
        _key("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, LONG_MAX,
             "Bytes per second that partitions are copied at which move to another log directory.", at_least(0),
             dynamic=True),
        _key("remote.log.storage.system.enable", _BOOL, False, "Switch tiered storage on."),
        _key("remote.log.storage.manager.class.name", _STR, None,
             "The storage plugin, as module:Class. By default, stratalog's object store manager."),
        _key("remote.log.storage.manager.class.path", _STR, None, "Path to import the storage plugin from."),
        _key("remote.log.storage.manager.impl.prefix", _STR, "rsm.config.", "Prefix of the storage plugin's keys."),
        _key("remote.log.metadata.manager.class.name", _STR, None,
             "The metadata plugin, as module:Class. By default, and with the name of Kafka's class, the topic-based "
             "manager."),
        _key("remote.log.metadata.manager.class.path", _STR, None, "Path to import the metadata plugin from."),
        _key("remote.log.metadata.manager.impl.prefix", _STR, "rlmm.config.", "Prefix of the metadata plugin's keys."),
        _key("remote.log.metadata.custom.metadata.max.bytes", _INT, 128,
             "Largest size of a plugin's custom metadata.", at_least(0)),
        _key("remote.log.manager.task.interval.ms", _LONG, 30_000,
             "Pause between two runs of a tiering task.", at_least(1)),
        _key("remote.log.manager.copier.thread.pool.size", _INT, 10,
             "Number of threads that copy segments.", at_least(1), dynamic=True),
        _key("remote.log.manager.expiration.thread.pool.size", _INT, 10,
             "Number of threads that expire remote segments.", at_least(1), dynamic=True),
        _key("remote.log.manager.follower.thread.pool.size", _INT, 2,
             "Number of threads of follower tasks.", at_least(1), dynamic=True),
        _key("remote.log.manager.thread.pool.size", _INT, 2,
             "Deprecated in Kafka.", at_least(1), no_effect="the three pools have sizes of their own"),
        _key("remote.log.manager.task.retry.backoff.ms", _LONG, 500,
             "First pause before a failed tiering task runs again, unless the task interval is shorter. It doubles "
             "each time.", at_least(1)),
        _key("remote.log.manager.task.retry.backoff.max.ms", _LONG, 30_000,
             "Longest pause before a failed tiering task runs again, unless the task interval is longer.", at_least(1)),
        _key("remote.log.manager.task.retry.jitter", _DOUBLE, 0.2,
             "Random variation of the pause between two runs, as a share of the pause.", between(0, 0.5)),
        _key("remote.log.metadata.manager.listener.name", _STR, None,
             "The listener for reading and writing the metadata topic.",
             no_effect="the broker reads and writes it directly"),
        _key("remote.log.reader.threads", _INT, 10,
             "Number of threads that read remote segments.", at_least(1), dynamic=True),
        _key("remote.log.reader.max.pending.tasks", _INT, 100, "Largest number of waiting remote reads.", at_least(1)),
        _key("remote.log.index.file.cache.total.size.bytes", _LONG, 1024**3,
             "Size of the remote index cache.", at_least(1), dynamic=True),
        _key("remote.log.index.file.cache.ttl.ms", _LONG, 900_000,
             "How long an idle entry of the remote index cache is kept. -1 means forever.", at_least(-1)),
        _key("remote.log.manager.copy.max.bytes.per.second", _LONG, LONG_MAX,
             "Bytes per second that all copies together may use.", at_least(1), dynamic=True),
        _key("remote.log.manager.copy.quota.window.num", _INT, 11, "Number of windows of the copy quota.", at_least(1)),
        _key("remote.log.manager.copy.quota.window.size.seconds", _INT, 1, "Length of one window.", at_least(1)),
        _key("remote.log.manager.fetch.max.bytes.per.second", _LONG, LONG_MAX,
             "Bytes per second that all remote reads together may use.", at_least(1), dynamic=True),
        _key("remote.log.manager.fetch.quota.window.num", _INT, 11,
             "Number of windows of the fetch quota.", at_least(1)),
        _key("remote.log.manager.fetch.quota.window.size.seconds", _INT, 1, "Length of one window.", at_least(1)),
        _key("quota.window.num", _INT, 11, "Number of windows that quotas of clients are measured over.", at_least(1)),
        _key("quota.window.size.seconds", _INT, 1, "Length of one window.", at_least(1)),
        _key("controller.quota.window.num", _INT, 11,
             "Number of windows that the quota for changes of topics is measured over.", at_least(1)),
        _key("controller.quota.window.size.seconds", _INT, 1, "Length of one window.", at_least(1)),
        _key("remote.fetch.max.wait.ms", _INT, 500,
             "Longest time that a fetch waits for remote data.", at_least(1), dynamic=True),
        _key("remote.list.offsets.request.timeout.ms", _LONG, 30_000,
             "Longest time that a search by timestamp in the remote tier may take.", at_least(1), dynamic=True),
        _key("remote.log.metadata.topic.num.partitions", _INT, 50, "Partitions of __remote_log_metadata.", at_least(1)),
        _key("remote.log.metadata.topic.replication.factor", _SHORT, 1,
             "Replicas of __remote_log_metadata.", at_least(1), no_effect=ONE_REPLICA),
        _key("remote.log.metadata.topic.min.isr", _SHORT, 2,
             "min.insync.replicas of __remote_log_metadata, when it is made.", at_least(1), no_effect=ONE_REPLICA),
        _key("remote.log.metadata.topic.retention.ms", _LONG, -1, "Retention of __remote_log_metadata."),
        _key("remote.log.metadata.consume.wait.ms", _LONG, 120_000,
             "Longest time to wait until the broker reads its own write of remote log metadata.", at_least(0)),
        _key("remote.log.metadata.initialization.retry.max.timeout.ms", _LONG, 120_000,
             "How long startup tries to open __remote_log_metadata before it fails.", at_least(0)),
        _key("remote.log.metadata.initialization.retry.interval.ms", _LONG, 100,
             "Pause between two such attempts.", at_least(0)),
        # Compaction.
        _key("log.cleaner.enable", _BOOL, True, "Whether logs are compacted."),
        _key("log.cleaner.threads", _INT, 1, "Number of cleaner threads.", at_least(0), dynamic=True),
        _key("log.cleaner.dedupe.buffer.size", _LONG, 128 * 1024**2,
             "Memory for the offset maps of all cleaner threads.", dynamic=True),
        _key("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9,
             "How full an offset map may get.", between(0, 1), dynamic=True),
        _key("log.cleaner.io.buffer.size", _INT, 512 * 1024,
             "Memory for the I/O buffers of all cleaner threads.", at_least(0), dynamic=True),
        _key("log.cleaner.backoff.ms", _LONG, 15_000,
             "Pause of a cleaner thread that finds nothing to clean.", at_least(0), dynamic=True),
        _key("log.cleaner.io.max.bytes.per.second", _DOUBLE, 1.7976931348623157e308,
             "Limit of the cleaners' reads and writes together.", above(0), dynamic=True),
        # Own keys.
        _key(INITIAL_METADATA_VERSION, _INT, INITIAL_LEVEL,
             "The metadata.version level of a new data directory. An existing one keeps its level.",
             between(LEVEL_MIN, LEVEL_MAX)),
        _key(PRODUCE_VALIDATION, _STR, "records",
             "What to check of a batch that a client sends: every record, as Kafka does, or only the header. "
"With 'header', one faulty client can make a partition unreadable for all of its consumers.",
             one_of("records", "header")),
        _key(SLOW_CALLBACK_MS, _INT, 0,
             "Log what holds up all clients for longer: the code that ran, and for which of them, a line a second at "
             "the most. 0: nothing is measured.", at_least(0)),
        _key("stratalog.web.allow.changes", _BOOL, False,
             "Whether the console may change settings, users and access rules, and produce records. Access rules count "
             "for it as for clients. On an address other than this machine's own that needs a login."),
        _key("stratalog.web.login", _STR, "auto",
             "Who may see the console: auto asks for a user of the broker (SCRAM or PLAIN) unless it is served on this "
             "machine alone and without an authorizer; required always asks, off never.",
             one_of("auto", "required", "off")),
        _key("stratalog.web.metrics.token", _PASSWORD, None,
             "Token with which /metrics is read where it needs a login (Authorization: Bearer TOKEN)."),
        _key("stratalog.web.schema.registry", _PASSWORD, None,
             "URL of a schema registry by which the console shows keys and values; user and password may stand in it."),
        _key("stratalog.web.hosts", _LIST, (),
             "Host names of the web server, besides addresses, localhost and the machine's name. Requests with "
             "another name in their Host header are refused."),
        _key("stratalog.web.proxies", _LIST, (),
             "Addresses of proxies before the web server: what their X-Forwarded-For and X-Forwarded-Proto headers say "
             "of a client counts. Without any, no such header counts."),
        _key("stratalog.remote.url", _STR, None,
             "Object store of the remote tier (file:///dir, s3://bucket/prefix). Default: the directory "
             "'remote-store' in the first log directory."),
        _key("stratalog.remote.s3.endpoint", _STR, None,
             "URL of an S3 server other than AWS (http://host:port). Default: AWS_ENDPOINT_URL."),
        _key("stratalog.remote.s3.region", _STR, None, "Region of the bucket. Default: AWS_REGION."),
        _key("stratalog.remote.s3.access.key.id", _STR, None,
             "Access key. Default: AWS_ACCESS_KEY_ID, or the credentials of the machine's role."),
        _key("stratalog.remote.s3.secret.access.key", _PASSWORD, None,
             "Secret of the access key. Default: AWS_SECRET_ACCESS_KEY."),
        _key("stratalog.remote.s3.session.token", _PASSWORD, None,
             "Token of temporary credentials. Default: AWS_SESSION_TOKEN."),
        _key("stratalog.remote.s3.path.style", _BOOL, None,
             "Whether to put the bucket in the path instead of the host name. Default: true if an endpoint is set."),
        _key("stratalog.remote.request.timeout.ms", _INT, 30_000,
             "Limit of one request to the object store.", at_least(1)),
        _key("stratalog.remote.stall.ms", _LONG, 120_000,
             "Log a warning about a task of the remote tier that has made no progress for this long.", at_least(1)),
        _key("stratalog.remote.compression", _STR, "none",
             "Compression of new segments in the object store, in chunks of 1 MiB: none or zstd.",
             one_of("none", "zstd")),
        _key("stratalog.remote.encryption.key.file", _STR, None,
             "Files with the AES-256 keys of segments in the object store, separated by commas. Each holds 32 bytes "
             "or their base64, or several keys in base64, one a line. The first key encrypts new segments, the others "
             "only read. The files are read again before each new segment. By default nothing is encrypted."),
        _key("stratalog.remote.aiven.encryption.key.file", _STR, None,
             "RSA private keys (PEM) of segments that Aiven's plugin encrypted: <key id>=<path>, separated by commas."),
        _key("stratalog.remote.deadline.ms", _INT, 60_000,
             "Limit of one operation with its retries. An upload may take longer while it makes progress.",
             at_least(1)),
    ]
)  # fmt: skip


#: Keys of the topic-based metadata manager, which Kafka has under the metadata plugin's prefix alone.
METADATA_TOPIC_KEYS = frozenset(
    key.name
    for key in BROKER_KEYS
    if key.name.startswith(
        ("remote.log.metadata.topic.", "remote.log.metadata.consume.", "remote.log.metadata.initialization.")
    )
)


class BrokerConfig(Mapping[str, Any]):
    """Typed values by key: what was set, over the defaults. Immutable; `with_overrides` makes another.

    `unknown` holds what was set under names that this version does not know.
    """

    def __init__(
        self,
        properties: Mapping[str, str | None] | None = None,
        *,
        plugin_properties: Mapping[str, str | None] | None = None,
    ) -> None:
        """`plugin_properties` hold plugins' own keys, under their prefixes; `properties` do unless they are given."""
        self.properties = dict(properties or {})
        self._plugin_properties = self.properties if plugin_properties is None else plugin_properties
        self.unknown: dict[str, str | None] = {}
        self._values: dict[str, Any] = {key.name: key.default for key in BROKER_KEYS}
        self._set: set[str] = set()
        for name, raw in self.properties.items():
            key = BROKER_KEYS.get(name)
            if key is None:
                self.unknown[name] = raw
            else:
                self._values[name] = key.parse(raw)
                self._set.add(name)
        self._take_prefixed()
        if "broker.id" in self._set:
            self._take_broker_id()
        for key in BROKER_KEYS:
            if key.coarser and key.name not in self._set:
                self._derive(key)
        check_group_limits(self._values)
        self._check_request_memory()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str | None]) -> BrokerConfig:
        """Parse and check; InvalidConfigError names the key, its value and what is allowed."""
        return cls(properties)

    def with_overrides(self, properties: Mapping[str, str | None]) -> BrokerConfig:
        """Return a new configuration with these set (or, for None, set to null) on top.

        Plugins' own keys stay as they are here: they are the operator's, and no client may change them.
        """
        return BrokerConfig({**self.properties, **properties}, plugin_properties=self._plugin_properties)

    def check_segment_size(self, *, large: bool) -> None:
        """InvalidConfigError when `log.segment.bytes` is past the limit in force (`large`: that of KIP-1333)."""
        check_segment_bytes("log.segment.bytes", self["log.segment.bytes"], large=large)

    def _check_request_memory(self) -> None:
        held_max, size_max = self._values["queued.max.request.bytes"], self._values["socket.request.max.bytes"]
        if 0 < held_max < size_max:
            raise invalid(
                "queued.max.request.bytes", held_max, f"must be at least socket.request.max.bytes, which is {size_max}"
            )

    def _take_prefixed(self) -> None:
        """Count keys of the topic-based metadata manager under the metadata plugin's prefix too, as Kafka does."""
        own = self.prefixed(self._values["remote.log.metadata.manager.impl.prefix"])
        for name in METADATA_TOPIC_KEYS & own.keys():
            prefixed = self._values["remote.log.metadata.manager.impl.prefix"] + name
            self._values[name] = replace(BROKER_KEYS[name], name=prefixed).parse(own[name])
            self._set.add(name)

    def _take_broker_id(self) -> None:
        """`broker.id` counts where `node.id` is not set."""
        if "node.id" not in self._set:
            self._values["node.id"] = BROKER_KEYS["node.id"].parse(self.properties["broker.id"])
        elif self._values["node.id"] != self._values["broker.id"]:
            raise invalid(
                "node.id", self._values["node.id"], "You must set `node.id` to the same value as `broker.id`."
            )

    def _derive(self, key: ConfigKey) -> None:
        """Take the value from a coarser spelling when only that was set; hours of -1 mean unlimited."""
        for coarse, factor in key.coarser:
            if coarse in self._set and self._values[coarse] is not None:
                value = self._values[coarse]
                self._values[key.name] = value if value < 0 else min(value * factor, LONG_MAX)
                return

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def is_set(self, name: str) -> bool:
        """Return whether the key was set by the user rather than left at its default."""
        return name in self._set

    def topic_defaults(self) -> dict[str, Any]:
        """Values for topic keys that this broker supplies, by topic key."""
        return {key.name: self._values[key.broker_key] for key in TOPIC_KEYS if key.broker_key}

    def prefixed(self, prefix: str) -> dict[str, str]:
        """Return the settings under `prefix`, without it: a plugin's own configuration."""
        return {
            name.removeprefix(prefix): raw
            for name, raw in self._plugin_properties.items()
            if name.startswith(prefix) and raw is not None
        }
