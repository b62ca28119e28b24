"""Broker keys that Kafka does not have: they begin with `stratalog.`."""

from __future__ import annotations

from typing import Final

from stratalog.config.broker_keys.declaring import BOOL, INT, LIST, LONG, PASSWORD, STR, key
from stratalog.config.keys import at_least, between, one_of
from stratalog.config.metadata_version import INITIAL_LEVEL, LEVEL_MAX, LEVEL_MIN
from stratalog.config.topic import PRODUCE_VALIDATION

#: The level that a new data directory starts at.
INITIAL_METADATA_VERSION: Final = "stratalog.initial.metadata.version"
SLOW_CALLBACK_MS: Final = "stratalog.loop.slow.callback.ms"

OWN_KEYS: Final = (
    key(INITIAL_METADATA_VERSION, INT, INITIAL_LEVEL,
        "The metadata.version level of a new data directory. An existing one keeps its level.",
        between(LEVEL_MIN, LEVEL_MAX)),
    key(PRODUCE_VALIDATION, STR, "records",
        "What to check of a batch that a client sends: every record, as Kafka does, or only the header. "
        "With 'header', one faulty client can make a partition unreadable for all of its consumers.",
        one_of("records", "header")),
    key(SLOW_CALLBACK_MS, INT, 0,
        "Log what holds up all clients for longer: the code that ran, and for which of them, a line a second at "
        "the most. 0: nothing is measured.", at_least(0)),
    key("stratalog.web.allow.changes", BOOL, False,
        "Whether the console may change settings, users and access rules, and produce records. Access rules count "
        "for it as for clients. On an address other than this machine's own that needs a login."),
    key("stratalog.web.login", STR, "auto",
        "Who may see the console: auto asks for a user of the broker (SCRAM or PLAIN) unless it is served on this "
        "machine alone and without an authorizer; required always asks, off never.",
        one_of("auto", "required", "off")),
    key("stratalog.web.metrics.token", PASSWORD, None,
        "Token with which /metrics is read where it needs a login (Authorization: Bearer TOKEN)."),
    key("stratalog.web.schema.registry", PASSWORD, None,
        "URL of a schema registry by which the console shows keys and values; user and password may stand in it."),
    key("stratalog.web.hosts", LIST, (),
        "Host names of the web server, besides addresses, localhost and the machine's name. Requests with "
        "another name in their Host header are refused."),
    key("stratalog.web.proxies", LIST, (),
        "Addresses of proxies before the web server: what their X-Forwarded-For and X-Forwarded-Proto headers say "
        "of a client counts. Without any, no such header counts."),
    key("stratalog.remote.url", STR, None,
        "Object store of the remote tier (file:///dir, s3://bucket/prefix). Default: the directory "
        "'remote-store' in the first log directory."),
    key("stratalog.remote.s3.endpoint", STR, None,
        "URL of an S3 server other than AWS (http://host:port). Default: AWS_ENDPOINT_URL."),
    key("stratalog.remote.s3.region", STR, None, "Region of the bucket. Default: AWS_REGION."),
    key("stratalog.remote.s3.access.key.id", STR, None,
        "Access key. Default: AWS_ACCESS_KEY_ID, or the credentials of the machine's role."),
    key("stratalog.remote.s3.secret.access.key", PASSWORD, None,
        "Secret of the access key. Default: AWS_SECRET_ACCESS_KEY."),
    key("stratalog.remote.s3.session.token", PASSWORD, None,
        "Token of temporary credentials. Default: AWS_SESSION_TOKEN."),
    key("stratalog.remote.s3.path.style", BOOL, None,
        "Whether to put the bucket in the path instead of the host name. Default: true if an endpoint is set."),
    key("stratalog.remote.request.timeout.ms", INT, 30_000,
        "Limit of one request to the object store.", at_least(1)),
    key("stratalog.remote.stall.ms", LONG, 120_000,
        "Log a warning about a task of the remote tier that has made no progress for this long.", at_least(1)),
    key("stratalog.remote.compression", STR, "none",
        "Compression of new segments in the object store, in chunks of 1 MiB: none or zstd.",
        one_of("none", "zstd")),
    key("stratalog.remote.encryption.key.file", STR, None,
        "Files with the AES-256 keys of segments in the object store, separated by commas. Each holds 32 bytes "
        "or their base64, or several keys in base64, one a line. The first key encrypts new segments, the others "
        "only read. The files are read again before each new segment. By default nothing is encrypted."),
    key("stratalog.remote.aiven.encryption.key.file", STR, None,
        "RSA private keys (PEM) of segments that Aiven's plugin encrypted: <key id>=<path>, separated by commas."),
    key("stratalog.remote.deadline.ms", INT, 60_000,
        "Limit of one operation with its retries. An upload may take longer while it makes progress.",
        at_least(1)),
)  # fmt: skip
