"""Broker keys of the node itself: its identity, its cluster, its topics and logs, and replication."""

from __future__ import annotations

from typing import Final

from stratalog.config.broker_keys.declaring import BOOL, INT, LIST, LONG, STR, key
from stratalog.config.keys import LONG_MAX, at_least, one_of

NODE_KEYS: Final = (
    # Node.
    key("node.id", INT, 1, "This node's id.", at_least(0)),
    key("broker.rack", STR, None, "The rack of this broker."),
    key("broker.id", INT, -1, "An older name of node.id. If both are set, they must be equal."),
    key("log.dirs", LIST, (), "The log directories. --data-dir takes precedence."),
    key("log.dir", LIST, (), "Like log.dirs, which takes precedence."),
    key("listeners", STR, "PLAINTEXT://:9092",
        "The addresses to listen on, as NAME://HOST:PORT, separated by commas. --listen takes precedence; the "
        "default is 127.0.0.1:9092. Listeners of controller.listener.names are not opened. A key of one listener "
        "is written listener.name.<name>.<key>, with the name in small letters."),
    key("advertised.listeners", STR, None,
        "The addresses that clients connect to. A client gets the address of the listener that it came in by. "
        "Ignored with --listen."),
    key("inter.broker.listener.name", STR, None,
        "The listener that max.connections does not count against: it closes the longest idle connection of "
        "another one instead. By default, that of security.inter.broker.protocol."),
    key("security.inter.broker.protocol", STR, "PLAINTEXT",
        "Names the listener of inter.broker.listener.name by its protocol.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
    key("listener.security.protocol.map", STR,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Security protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."),
    key("controller.listener.names", LIST, (),
        "Names of the controllers' listeners. They are not opened. A broker of a cluster reaches the controllers "
        "by the protocol and settings of the first."),
    key("stratalog.large.segments", BOOL, False,
        "Whether this broker of a cluster accepts segments larger than 2 GiB (KIP-1333) and registers that. "
        "A topic can have such segments, sized by log.segment.bytes, if all brokers with a replica accept them."),
    key("process.roles", LIST, (),
        "broker joins the cluster of controller.quorum.bootstrap.servers. broker,controller is a node by itself, "
        "which is the default."),
    key("controller.quorum.bootstrap.servers", LIST, (),
        "Addresses of the cluster's controllers, as HOST:PORT. Only with process.roles=broker."),
    key("controller.quorum.voters", LIST, (),
        "The controllers of a static quorum, as ID@HOST:PORT. Only with process.roles=broker."),
    key("controller.quorum.fetch.timeout.ms", INT, 2000,
        "How long a controller may take to answer before another is asked.", at_least(1)),
    key("controller.socket.timeout.ms", INT, 30_000,
        "How long a controller may take to answer a request (heartbeats and fetches have less).", at_least(1)),
    key("initial.broker.registration.timeout.ms", INT, 60_000,
        "How long a broker tries to find the controllers and to register before it gives up.", at_least(0)),
    key("broker.heartbeat.interval.ms", INT, 2000, "The time between heartbeats to the controller.", at_least(1)),
    key("auto.create.topics.enable", BOOL, True,
        "Whether a topic is created when a client asks for it and it does not exist."),
    key("num.partitions", INT, 1,
        "Number of partitions of a topic that is created without a count.", at_least(1)),
    key("default.replication.factor", INT, 1,
        "Number of replicas of a topic that is created without a count.", at_least(1)),
    key("delete.topic.enable", BOOL, True, "Whether topics can be deleted."),
    key("log.retention.minutes", INT, None, "Like log.retention.ms, in minutes."),
    key("log.retention.hours", INT, 168, "Like log.retention.ms, in hours."),
    key("log.roll.hours", INT, 168, "Like log.roll.ms, in hours.", at_least(1)),
    key("log.roll.jitter.hours", INT, 0, "Like log.roll.jitter.ms, in hours.", at_least(0)),
    # Replication, in a cluster.
    key("num.replica.fetchers", INT, 1, "Threads that fetch from each leader.", at_least(1), dynamic=True),
    key("replica.selector.class", STR, None,
        "With the rack-aware selector, a consumer that names its rack (client.rack) is sent to a follower in "
        "there, if one is in sync. Without, to the leader.",
        one_of("", "org.apache.kafka.common.replica.RackAwareReplicaSelector")),
    key("leader.replication.throttled.rate", LONG, LONG_MAX,
        "Bytes per second that go to followers which are not in sync, of the replicas that a topic's "
        "leader.replication.throttled.replicas names.", at_least(0), dynamic=True),
    key("follower.replication.throttled.rate", LONG, LONG_MAX,
        "Bytes per second that replicas fetch which are not in sync, of those that a topic's "
        "follower.replication.throttled.replicas names.", at_least(0), dynamic=True),
    key("replication.quota.window.num", INT, 11,
        "Windows that the rates of throttled replication are measured over.", at_least(1)),
    key("replication.quota.window.size.seconds", INT, 1, "How long each of these is.", at_least(1)),
    key("replica.fetch.backoff.ms", INT, 1_000,
        "How long a follower waits after an error before it asks again.", at_least(0)),
    key("replica.fetch.max.bytes", INT, 1024**2,
        "Bytes of a partition that a follower asks for; a batch that is larger comes whole.", at_least(0)),
    key("replica.fetch.min.bytes", INT, 1, "Bytes that a leader waits for before it answers a follower."),
    key("replica.fetch.response.max.bytes", INT, 10 * 1024**2,
        "Bytes that a follower asks for in all.", at_least(0)),
    key("replica.fetch.wait.max.ms", INT, 500, "The longest that a leader waits for more."),
    key("replica.socket.timeout.ms", INT, 30_000,
        "How long another broker may take to answer before the connection counts as lost.", at_least(1)),
    key("replica.lag.time.max.ms", LONG, 30_000,
        "A follower that has not caught up for this time is removed from the in-sync replicas."),
    key("log.retention.check.interval.ms", LONG, 300_000, "How often retention is applied.", at_least(1)),
    key("log.initial.task.delay.ms", LONG, 30_000,
        "Delay before the first background tasks after startup.", at_least(0)),
    key("log.flush.scheduler.interval.ms", LONG, LONG_MAX, "How often logs are checked for a flush."),
    key("log.flush.offset.checkpoint.interval.ms", INT, 60_000,
        "How often recovery points are written to disk.", at_least(0)),
    key("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000,
        "How often log start offsets are written to disk.", at_least(0)),
    key("num.recovery.threads.per.data.dir", INT, 2,
        "Threads that load the logs of one directory.", at_least(1), dynamic=True),
    key("min.topic.segment.ms", LONG, 3_600_000,
        "The minimum value for topic configuration segment.ms (KIP-760).", at_least(0), dynamic=True),
    key("min.topic.segment.bytes", INT, 1_048_576,
        "The minimum value for topic configuration segment.bytes (KIP-760). A value below 1048576 has no effect, "
        "because segment.bytes must be at least 1048576.", at_least(0), dynamic=True),
)  # fmt: skip
