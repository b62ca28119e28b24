"""Response types of the cluster, security and events."""

from __future__ import annotations

from typing import TypedDict


class BrokerJson(TypedDict):
    """A broker of the cluster."""

    id: int
    host: str
    port: int
    rack: str | None
    isFenced: bool
    isController: bool
    kind: str


class ControllerJson(TypedDict):
    """A voter of the controllers' quorum."""

    id: int
    isLeader: bool
    logEndOffset: int


class BrokerSettingJson(TypedDict):
    """A configuration value of this broker."""

    name: str
    value: str | None
    isSensitive: bool
    help: str


class ClusterStateAnswer(TypedDict):
    """Brokers, controllers, features, and the configuration of this broker."""

    clusterId: str
    controllerId: int
    nodeId: int
    brokers: list[BrokerJson]
    controllers: list[ControllerJson]
    metadataVersion: int
    features: dict[str, int]
    settings: list[BrokerSettingJson]


class MechanismJson(TypedDict):
    """A SCRAM mechanism of a user."""

    name: str
    iterations: int


class UserJson(TypedDict):
    """A user with SCRAM credentials."""

    user: str
    mechanisms: list[MechanismJson]


class AccessRuleJson(TypedDict):
    """An access rule."""

    principal: str
    host: str
    operation: str
    permission: str
    type: str
    name: str
    pattern: str


class QuotaPart(TypedDict):
    """The entity of a quota; the name None is the default."""

    type: str
    name: str | None


class QuotaLimit(TypedDict):
    """A limit."""

    key: str
    value: float


class ClientQuotaJson(TypedDict):
    """The limits of one user, client id, or both."""

    entity: list[QuotaPart]
    values: list[QuotaLimit]


class SecurityChoices(TypedDict):
    """Choices in the forms of the page."""

    mechanisms: list[str]
    operations: list[str]
    types: list[str]
    patterns: list[str]
    permissions: list[str]
    quotas: list[str]


class SecurityAnswer(TypedDict):
    """Users, rules and quotas, with an error for those not shown."""

    hasAuthorizer: bool
    principal: str
    users: list[UserJson]
    usersError: str | None
    acls: list[AccessRuleJson]
    aclsError: str | None
    hasQuotas: bool
    quotas: list[ClientQuotaJson]
    quotasError: str | None
    choices: SecurityChoices


class EventJson(TypedDict):
    """A log line; `times` is how often it occurred between `firstMs` and `atMs`."""

    atMs: int
    firstMs: int
    level: str
    source: str
    text: str
    times: int


class EventsAnswer(TypedDict):
    """Noteworthy events, the newest first."""

    events: list[EventJson]
    found: int
