"""Access rules, users, tokens and quotas of a cluster: from records of its metadata log to what a broker enforces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from uuid import UUID

import pytest

from stratalog.broker.access import AclOperation, ResourceType, access_control
from stratalog.broker.cluster.access_rules import EnforcedRules, acl_of_record
from stratalog.broker.cluster.authorizers import refuse_open_door
from stratalog.broker.cluster.delta import MetadataDelta
from stratalog.broker.cluster.forwarding import encode_principal
from stratalog.broker.cluster.image import EMPTY_IMAGE, MetadataImage
from stratalog.broker.cluster.image_metadata import ImageMetadata
from stratalog.broker.cluster.publisher import MetadataPublisher
from stratalog.broker.cluster.serving import refused_token_request
from stratalog.broker.quotas import ClientQuotas
from stratalog.broker.security import IssuedTokens, Principal, ScramUsers
from stratalog.config import BrokerConfig
from stratalog.errors import UsageError
from stratalog.util import SYSTEM_CLOCK
from stratalog.wire import ApiKey, principal_class, read_message, response_class
from stratalog.wire.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    decode_metadata_record,
    encode_metadata_record,
)

ALICE = Principal("User", "alice")
MAY_READ = AccessControlEntryRecord(
    id=UUID(int=1), resource_type=2, resource_name="orders", pattern_type=3, principal="User:alice", host="*",
    operation=3, permission_type=3,
)  # fmt: skip
MAY_NOT = AccessControlEntryRecord(
    id=UUID(int=2), resource_type=2, resource_name="ord", pattern_type=4, principal="User:*", host="*",
    operation=2, permission_type=2,
)  # fmt: skip
PASSWORD = UserScramCredentialRecord(
    name="alice", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
)
TOKEN = DelegationTokenRecord(
    owner="User:alice", requester="User:a:b", renewers=("User:bob",), issue_timestamp=1, max_timestamp=30,
    expiration_timestamp=20, token_id="t1",
)  # fmt: skip
QUOTA = ClientQuotaRecord(
    entity=(EntityData(entity_type="user", entity_name="alice"),), key="producer_byte_rate", value=1024.0
)


class Member:
    """The security of a broker that follows a metadata log."""

    def __init__(self, **properties: str) -> None:
        self.config = BrokerConfig.from_properties(
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:admin",
                "delegation.token.secret.key": "secret",
                **properties,
            }
        )
        self.loop = asyncio.new_event_loop()
        self.metadata = ImageMetadata("cluster")
        self.publisher = MetadataPublisher(self.metadata, 1)
        # Replicas and configurations are not looked at here.
        self.publisher._logs = SimpleNamespace(apply=lambda _changes: None, partitions=list)  # type: ignore[assignment]
        self.publisher._settings = SimpleNamespace()  # type: ignore[assignment]
        self.publisher._log_config = lambda _topic: None  # type: ignore[assignment,return-value]
        self.image: MetadataImage = EMPTY_IMAGE
        self.access = access_control(self.config, self.metadata.acls)
        self.users = ScramUsers(self.metadata)
        self.tokens = IssuedTokens(self.metadata, self.config, lambda: 10)
        self.quotas = ClientQuotas(self.metadata, self.config, SYSTEM_CLOCK, self.loop)

    def open(self) -> None:
        services = SimpleNamespace(
            loop=self.loop, access=self.access, scram=self.users, tokens=self.tokens, quotas=self.quotas
        )
        self.publisher.open_security(services)  # type: ignore[arg-type]
        self.turn()

    def publish(self, *records: MetadataRecord) -> None:
        """Replay records as they come from the log."""
        delta = MetadataDelta(self.image)
        for each in records:
            delta.replay(decode_metadata_record(encode_metadata_record(each, 0)).record)
        self.image = delta.apply(self.image.offset + 1, 1)
        self.publisher(delta, self.image)
        self.turn()

    def take_snapshot(self, image: MetadataImage) -> None:
        self.image = image
        self.publisher(MetadataDelta.of_all(image), image)
        self.turn()

    def turn(self) -> None:
        self.loop.run_until_complete(asyncio.sleep(0))

    def may_read(self, name: str, principal: str = "User:alice") -> bool:
        assert self.access is not None
        decide = self.access.authorizer.decide
        return decide(principal, "127.0.0.1", AclOperation.READ, ResourceType.TOPIC, name).allowed


@pytest.fixture
def member() -> Iterator[Member]:
    made = Member()
    yield made
    made.loop.close()


def test_rules_count_as_soon_as_the_log_has_them_and_not_once_it_has_removed_them(member: Member) -> None:
    member.open()
    assert not member.may_read("orders")
    member.publish(MAY_READ)
    assert member.may_read("orders")
    assert not member.may_read("orders", "User:bob")
    assert member.may_read("orders", "User:admin")
    member.publish(MAY_NOT)
    assert not member.may_read("orders")
    member.publish(RemoveAccessControlEntryRecord(id=MAY_NOT.id))
    assert member.may_read("orders")
    member.publish(RemoveAccessControlEntryRecord(id=MAY_READ.id))
    assert not member.may_read("orders")
    assert member.access is not None
    assert len(member.access.authorizer) == 0


def test_a_rule_that_the_log_has_twice_counts_until_both_are_gone(member: Member) -> None:
    member.open()
    again = replace(MAY_READ, id=UUID(int=9))
    member.publish(MAY_READ, again)
    member.publish(RemoveAccessControlEntryRecord(id=MAY_READ.id))
    assert member.may_read("orders")
    member.publish(RemoveAccessControlEntryRecord(id=again.id))
    assert not member.may_read("orders")


def test_what_the_log_has_brought_before_the_broker_serves_is_in_force(member: Member) -> None:
    member.publish(MAY_READ, PASSWORD, TOKEN, QUOTA)
    member.open()
    assert member.may_read("orders")
    assert member.users.get("SCRAM-SHA-256", "alice") is not None
    assert member.tokens.get("t1") is not None


def test_a_snapshot_takes_away_what_it_does_not_have(member: Member) -> None:
    member.open()
    member.publish(MAY_READ, PASSWORD, TOKEN, QUOTA)
    member.take_snapshot(MetadataImage(offset=100, epoch=2))
    assert not member.may_read("orders")
    assert member.users.users() == []
    assert member.tokens.all() == []
    assert member.metadata.client_quotas() == {}


def test_users_log_in_by_the_credentials_of_the_log(member: Member) -> None:
    member.open()
    member.publish(PASSWORD)
    found = member.users.get("SCRAM-SHA-256", "alice")
    assert found is not None
    assert (found.salt, found.stored_key, found.server_key, found.iterations) == (b"salt", b"stored", b"server", 4096)
    member.publish(RemoveUserScramCredentialRecord(name="alice", mechanism=1))
    assert member.users.get("SCRAM-SHA-256", "alice") is None


def test_tokens_let_their_owner_in_until_the_log_removes_them(member: Member) -> None:
    member.open()
    member.publish(TOKEN)
    token = member.tokens.get("t1")
    assert token is not None
    assert (token.owner, token.requester, token.renewers) == (
        ALICE,
        Principal("User", "a:b"),
        (Principal("User", "bob"),),
    )
    assert (token.issued_ms, token.expires_ms, token.max_ms) == (1, 20, 30)
    account = member.tokens.account("SCRAM-SHA-256", "t1")
    assert account is not None
    assert account.principal == ALICE
    member.publish(RemoveDelegationTokenRecord(token_id="t1"))
    assert member.tokens.account("SCRAM-SHA-256", "t1") is None
    assert member.tokens.all() == []


def test_without_a_secret_tokens_of_the_log_admit_no_client() -> None:
    member = Member(**{"delegation.token.secret.key": ""})
    member.open()
    member.publish(TOKEN)
    assert member.tokens.account("SCRAM-SHA-256", "t1") is None
    member.loop.close()


@pytest.mark.parametrize("by_token", [False, True])
def test_the_controllers_hear_by_what_a_client_came_in(by_token: bool) -> None:
    encoded = encode_principal(ALICE, by_token=by_token)
    assert encoded[:2] == b"\0\0"
    found, _ = read_message(principal_class(), encoded[2:])
    assert (found.type_, found.name, found.token_authenticated) == ("User", "alice", by_token)


@pytest.mark.parametrize(
    ("key", "version"),
    [
        *((ApiKey.CREATE_DELEGATION_TOKEN, version) for version in (1, 2, 3)),
        *((key, v) for key in (ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN) for v in (1, 2)),
    ],
)
def test_who_came_in_by_a_token_is_refused_before_the_controllers_are_asked(key: ApiKey, version: int) -> None:
    answer = refused_token_request(key, version, 77, ALICE)
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    assert int.from_bytes(answer[4:8], "big") == 77
    of_version = response_class(key, version)
    body = answer[9 if of_version.__flexible__ else 8 :]
    assert int.from_bytes(body[:2], "big") == 64  # kio cannot read a time of -1, which Kafka answers


def test_a_rule_that_moves_to_another_id_in_one_step_stays_in_force() -> None:
    rules = EnforcedRules()
    rule = acl_of_record(MAY_READ)
    assert rules.follow({UUID(int=1): MAY_READ}) == ([], [rule])
    assert rules.follow({UUID(int=9): replace(MAY_READ, id=UUID(int=9))}) == ([], [])
    assert rules.follow({}) == ([rule], [])


def test_rules_with_which_the_authorizer_was_made_go_when_the_image_lacks_them() -> None:
    rules = EnforcedRules()
    kept, gone = acl_of_record(MAY_READ), acl_of_record(MAY_NOT)
    rules.begin_with([kept, gone])
    assert rules.follow({UUID(int=1): MAY_READ}) == ([gone], [kept])
    assert rules.follow({UUID(int=1): MAY_READ}) == ([], [])


@pytest.mark.parametrize(
    ("at_controllers", "here", "rules", "is_refused"),
    [
        (True, False, 0, True),
        (True, False, 3, True),
        (False, False, 3, True),
        (False, False, 0, False),
        (True, True, 3, False),
        (False, True, 0, False),
    ],
)
def test_a_broker_that_would_be_an_open_door_does_not_join(
    at_controllers: bool, here: bool, rules: int, is_refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if is_refused:
        with pytest.raises(UsageError, match=r"without an authorizer of its own.*Set authorizer\.class\.name="):
            refuse_open_door(at_controllers=at_controllers, here=here, rules=rules)
    else:
        refuse_open_door(at_controllers=at_controllers, here=here, rules=rules)
    assert ("The controllers have no authorizer" in caplog.text) is (here and not at_controllers)
