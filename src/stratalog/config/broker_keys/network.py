"""Broker keys of requests and connections, and of who may connect and do what: SASL, TLS, access."""

from __future__ import annotations

from typing import Final

from stratalog.config.broker_keys.declaring import BOOL, INT, LIST, LONG, NO_OTHERS, PASSWORD, STR, key
from stratalog.config.keys import AUTHORIZER, INT_MAX, STANDARD_AUTHORIZER, at_least, host_numbers, one_of

NETWORK_KEYS: Final = (
    # Requests and connections.
    key("socket.request.max.bytes", INT, 100 * 1024**2, "The largest request that is accepted.", at_least(1)),
    key("socket.send.buffer.bytes", INT, 102_400, "SO_SNDBUF. -1 keeps the system's default."),
    key("socket.receive.buffer.bytes", INT, 102_400, "SO_RCVBUF. -1 keeps the system's default."),
    key("socket.listen.backlog.size", INT, 50, "Pending connections.", at_least(1)),
    key("connections.max.idle.ms", LONG, 600_000, "How long a connection may be idle before it is closed."),
    key("max.connections", INT, INT_MAX,
        "Largest number of connections at the same time; of a listener under its prefix.", at_least(0),
        dynamic=True),
    key("max.connections.per.ip", INT, INT_MAX,
        "Largest number of connections of one address. More are closed at once.", at_least(0), dynamic=True),
    key("max.connections.per.ip.overrides", LIST, (),
        "Other limits of single addresses or host names: host:number, separated by commas.", host_numbers,
        dynamic=True),
    key("max.connection.creation.rate", INT, INT_MAX,
        "Largest number of new connections per second; of a listener under its prefix. More wait.", at_least(0),
        dynamic=True),
    key("fetch.max.bytes", INT, 55 * 1024**2, "The largest fetch response.", at_least(1024)),
    key("queued.max.request.bytes", LONG, -1,
        "Memory for partly received requests, over all connections. Beyond it, no more of large requests is read "
        "until there is room. The same amount bounds answers that clients do not read. -1 means a "
        "quarter of the memory of the machine or container."),
    key("queued.max.requests", INT, 500,
        "Largest number of queued requests.",
        at_least(1), no_effect="requests are not queued: a connection's next request is read when there is room"),
    key("max.incremental.fetch.session.cache.slots", INT, 1000,
        "Largest number of fetch sessions (KIP-227). A client without one sends full requests.", at_least(0)),
    # SASL.
    key("sasl.enabled.mechanisms", LIST, ("GSSAPI",),
        "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's default, GSSAPI, is not supported. The keys of "
        "a mechanism, and the sasl.jaas.config with the users of PLAIN, begin with "
        "listener.name.<name>.<mechanism>, in small letters."),
    key("sasl.server.max.receive.size", INT, 524_288,
        "The largest message of a client that has not authenticated.", at_least(1)),
    key("sasl.oauthbearer.jwks.endpoint.url", STR, None,
        "URL of the keys that sign the tokens of OAUTHBEARER: file:, https: or http:."),
    key("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3_600_000, "How often they are read again.",
        at_least(1)),
    key("sasl.oauthbearer.expected.audience", LIST, (), "Accepted audiences. A token must name one of them."),
    key("sasl.oauthbearer.expected.issuer", STR, None, "The issuer that a token names."),
    key("sasl.oauthbearer.allow.unverified.audience", BOOL, False,
        "Whether tokens for anybody are taken when no audience is expected; else the broker does not start."),
    key("sasl.oauthbearer.allow.unverified.issuer", BOOL, False,
        "Whether tokens of any issuer are taken when none is expected; else the broker does not start."),
    key("sasl.oauthbearer.sub.claim.name", STR, "sub", "The claim that holds the name of the user."),
    key("sasl.oauthbearer.scope.claim.name", STR, "scope",
        "The claim that lists the scopes. They need not be there; a blank or repeated one is refused."),
    key("sasl.oauthbearer.clock.skew.seconds", INT, 30, "By how much clocks may differ.", at_least(0)),
    key("sasl.mechanism.inter.broker.protocol", STR, "GSSAPI", "Mechanism of the brokers among themselves.",
        no_effect=NO_OTHERS),
    key("sasl.mechanism.controller.protocol", STR, "GSSAPI", "Mechanism of brokers at controllers."),
    key("connections.max.reauth.ms", LONG, 0,
        "How long a client that has authenticated may go on before it does so again (KIP-368). 0 means for ever.",
        at_least(0)),
    key("connection.failed.authentication.delay.ms", INT, 100,
        "How long the answer to a failed authentication, and the end of the connection, wait.", at_least(0)),
    key("delegation.token.secret.key", PASSWORD, None,
        "The secret by which delegation tokens are made. Without it there are none; another one makes all tokens "
        "void."),
    key("delegation.token.max.lifetime.ms", LONG, 604_800_000, "How long a token may be renewed.", at_least(1)),
    key("delegation.token.expiry.time.ms", LONG, 86_400_000, "How long a token lasts until it is renewed.",
        at_least(1)),
    key("delegation.token.expiry.check.interval.ms", LONG, 3_600_000, "How often expired tokens are removed.",
        at_least(1)),
    # TLS.
    key("ssl.keystore.type", STR, "JKS", "PEM or PKCS12. With the default, a file of PKCS12 is read too; Java's "
        "own format is refused."),
    key("ssl.keystore.location", STR, None,
        "File with the broker's private key and certificates. Read again when it changes."),
    key("ssl.keystore.password", PASSWORD, None, "Password of a PKCS12 file."),
    key("ssl.keystore.key", PASSWORD, None, "The private key itself, in PEM."),
    key("ssl.keystore.certificate.chain", PASSWORD, None, "The certificates themselves, in PEM."),
    key("ssl.key.password", PASSWORD, None, "Password of a private key in PEM."),
    key("ssl.truststore.type", STR, "JKS", "PEM or PKCS12, as for ssl.keystore.type."),
    key("ssl.truststore.location", STR, None,
        "File with the CA certificates of clients. Reloaded when it changes."),
    key("ssl.truststore.password", PASSWORD, None, "Password of a PKCS12 file."),
    key("ssl.truststore.certificates", PASSWORD, None, "The certificates themselves, in PEM."),
    key("ssl.client.auth", STR, "none",
        "Whether clients show a certificate: none, requested or required. Only set under a listener's prefix, it "
        "counts for SASL_SSL too.", one_of("none", "requested", "required")),
    key("ssl.principal.mapping.rules", STR, "DEFAULT",
        "How the name of a client's certificate becomes its principal: RULE:pattern/replacement/[LU], separated "
        "by commas; DEFAULT takes it as it is."),
    key("ssl.enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), "TLSv1.2, TLSv1.3, or both."),
    key("ssl.cipher.suites", LIST, (),
        "Suites by their standard names. By default, those of OpenSSL. Suites of TLSv1.3 are all named or none."),
    # Access.
    key(AUTHORIZER, STR, "",
        "What decides who may do what. Empty: everybody may do everything. Else "
        f"{STANDARD_AUTHORIZER}: access rules decide. Another class is refused.", one_of("", STANDARD_AUTHORIZER)),
    key("super.users", STR, "", "Who may do everything, whatever the rules say: User:admin;User:other."),
    key("allow.everyone.if.no.acl.found", BOOL, False,
        "Whether everybody may do everything to a resource that no rule is about."),
    key("stratalog.authorizer.log.format", STR, "text",
        "How decisions are logged by kafka.authorizer.logger: text, as Kafka does, or json, an object a line.",
        one_of("text", "json")),
)  # fmt: skip
