"""The broker keeps rules, obeys a change of them at once, and writes down what it decided."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.waiting import wait_until
from tests.support.wire import Wire

from stratalog.broker.access import AccessControl, AclOperation, Authorizer, PatternType, Permission, ResourceType
from stratalog.broker.security import Listener, Peer, Principal
from stratalog.broker.server import Broker
from stratalog.config import STANDARD_AUTHORIZER
from stratalog.errors import StratalogError
from stratalog.records.batch_builder import build_batch
from stratalog.records.record import Record
from stratalog.testing.clock import ManualClock
from stratalog.wire.api_keys import ApiKey

CONFIG = {"authorizer.class.name": STANDARD_AUTHORIZER, "allow.everyone.if.no.acl.found": True}
READ, WRITE, DESCRIBE = 3, 4, 8


def rule(name: str, operation: int, permission: Permission, changes: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "resource_type": int(ResourceType.TOPIC),
        "resource_name": name,
        "resource_pattern_type": int(PatternType.LITERAL),
        "principal": "User:ANONYMOUS",
        "host": "*",
        "operation": operation,
        "permission_type": int(permission),
        **(changes or {}),
    }


def create(wire: Wire, *rules: dict[str, Any]) -> list[int]:
    return [int(each.error_code) for each in wire.call(ApiKey.CREATE_ACLS, 3, creations=list(rules)).results]


def every_rule(wire: Wire) -> list[tuple[str, str, int]]:
    found = wire.call(
        ApiKey.DESCRIBE_ACLS, 3, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    return sorted((each.resource_name, acl.principal, acl.operation) for each in found.resources for acl in each.acls)


def produce(wire: Wire, topic: str) -> int:
    records = build_batch([Record(0, 1_700_000_000_000, b"k", b"v")])
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    response = wire.call(ApiKey.PRODUCE, 9, acks=1, timeout=1000, topic_data=data)
    return int(response.responses[0].partition_responses[0].error_code)


def make_topic(wire: Wire, name: str) -> None:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    assert not wire.call(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout=10_000).topics[0].error_code


@pytest.fixture
def wire(tmp_path: Path) -> Iterator[Wire]:
    with Broker(tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        make_topic(wire, "orders")
        yield wire


def test_a_rule_is_kept_over_a_restart_and_a_deletion_too(tmp_path: Path) -> None:
    with Broker(tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        rules = [rule("orders", READ, Permission.ALLOW), rule("orders", WRITE, Permission.ALLOW)]
        assert create(wire, *rules, rules[0]) == [0, 0, 0]
    with Broker(tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        both = [("orders", "User:ANONYMOUS", READ), ("orders", "User:ANONYMOUS", WRITE)]
        assert every_rule(wire) == both
        chosen = {"resource_type_filter": 2, "pattern_type_filter": 1, "operation": READ, "permission_type": 1}
        (result,) = wire.call(ApiKey.DELETE_ACLS, 3, filters=[chosen]).filter_results
        assert [acl.operation for acl in result.matching_acls] == [READ]
        assert every_rule(wire) == both[1:]
    with Broker(tmp_path, config=CONFIG) as broker, Wire(broker.bootstrap_servers) as wire:
        assert every_rule(wire) == both[1:]


def test_a_producer_in_full_swing_is_stopped_by_the_next_rule(wire: Wire) -> None:
    # Alike requests take the short way from the second on.
    assert [produce(wire, "orders") for _ in range(5)] == [0] * 5
    assert create(wire, rule("orders", WRITE, Permission.DENY)) == [0]
    assert [produce(wire, "orders") for _ in range(3)] == [29] * 3


def test_a_consumer_in_a_session_is_stopped_by_the_next_rule(wire: Wire) -> None:
    produce(wire, "orders")
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}
    fields = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1000, "rack_id": ""}
    first = wire.call(
        ApiKey.FETCH, 11, **fields, session_id=0, session_epoch=0, topics=[{"topic": "orders", "partitions": [wanted]}]
    )
    assert first.responses[0].partitions[0].error_code == 0
    assert create(wire, rule("orders", READ, Permission.DENY)) == [0]
    again = wire.call(ApiKey.FETCH, 11, **fields, session_id=first.session_id, session_epoch=1, topics=[])
    assert again.responses[0].partitions[0].error_code == 29
    assert not again.responses[0].partitions[0].records


def heartbeat(wire: Wire, **fields: Any) -> int:
    response = wire.call(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="m", rebalance_timeout=60_000, **fields
    )
    return int(response.error_code)


def test_a_group_that_reads_what_a_client_may_not_see_is_hidden(wire: Wire) -> None:
    assert heartbeat(wire, member_epoch=0, subscribed_topic_names=["orders"], topic_partitions=[]) == 0
    (seen,) = wire.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups
    assert (seen.error_code, len(seen.members)) == (0, 1)
    assert create(wire, rule("orders", DESCRIBE, Permission.DENY)) == [0]
    (hidden,) = wire.call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g"]).groups
    assert (hidden.error_code, hidden.members) == (29, ())


def test_a_partition_of_no_topic_is_a_partition_that_a_joining_member_may_not_own(wire: Wire) -> None:
    owned = [{"topic_id": None, "partitions": [0]}]
    assert heartbeat(wire, member_epoch=0, subscribed_topic_names=["orders"], topic_partitions=owned) == 42


def test_a_regular_expression_finds_no_topic_that_a_client_may_not_see(tmp_path: Path) -> None:
    clock = ManualClock()
    with Broker(tmp_path, config=CONFIG, clock=clock) as broker, Wire(broker.bootstrap_servers) as wire:
        _match_what_may_be_seen(broker, wire, clock)


def _match_what_may_be_seen(broker: Broker, wire: Wire, clock: ManualClock) -> None:
    for name in ("orders", "ordinary", "secret-order", "other"):
        broker.create_topic(name)
    assert create(wire, rule("orders", DESCRIBE, Permission.DENY)) == [0]
    pattern = {"member_epoch": 0, "subscribed_topic_regex": "ord.*|order-later", "topic_partitions": []}
    assert heartbeat(wire, **pattern) == 0

    def found(*topics: str) -> bool:
        group = broker.services.groups.consumers.get("g")
        assert group is not None
        return [set(each.topics) for each in group.resolved.values()] == [set(topics)]

    wait_until(lambda: found("ordinary"), "the first match")
    # What comes later is asked for again, and found only if it may be seen.
    assert create(wire, rule("order-later", DESCRIBE, Permission.DENY)) == [0]
    for name in ("order-later", "ordered"):
        broker.create_topic(name)

    clock.advance(10_001)  # expressions are not matched more often

    def beats() -> bool:
        assert heartbeat(wire, **pattern) == 0
        return found("ordinary", "ordered")

    wait_until(beats, "the second match", every=0.2)


def test_a_group_that_is_asked_for_twice_shows_no_offsets_of_what_a_client_may_not_see(wire: Wire) -> None:
    make_topic(wire, "public")
    commit = {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": -1, "committed_metadata": ""}
    committed = wire.call(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[{"name": name, "partitions": [commit]} for name in ("orders", "public")],
    )
    assert [topic.partitions[0].error_code for topic in committed.topics] == [0, 0]
    assert create(wire, rule("orders", DESCRIBE, Permission.DENY)) == [0]
    every = {"group_id": "g", "topics": None}
    forbidden = {"group_id": "g", "topics": [{"name": "orders", "partition_indexes": [0]}]}
    for asked in ([every, forbidden], [forbidden, every], [every, every]):
        groups = wire.call(ApiKey.OFFSET_FETCH, 8, groups=asked, require_stable=False).groups
        found = [
            {
                topic.name: (part.committed_offset, int(part.error_code))
                for topic in group.topics
                for part in topic.partitions
            }
            for group in groups
        ]
        assert found == [{"public": (7, 0)} if each is every else {"orders": (-1, 29)} for each in asked]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"resource_type": 4}, 42),
        ({"resource_name": ""}, 42),
        ({"resource_pattern_type": 2}, 42),
        ({"operation": 1}, 42),
        ({"operation": 99}, 42),
        ({"permission_type": 1}, 42),
        ({"principal": "alice"}, 42),
        ({"host": ""}, 42),
        ({"host": "10.0.0.0/24"}, 35),
    ],
)
def test_a_rule_that_means_nothing_is_refused(wire: Wire, changes: dict[str, Any], code: int) -> None:
    assert create(wire, rule("orders", READ, Permission.ALLOW, changes)) == [code]
    assert every_rule(wire) == []


def test_without_an_authorizer_rules_are_refused_by_name() -> None:
    with Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        assert create(wire, rule("orders", READ, Permission.ALLOW)) == [54]
        described = wire.call(
            ApiKey.DESCRIBE_ACLS, 3, resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        )
        assert (described.error_code, described.error_message) == (54, "No Authorizer is configured on the broker")


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"authorizer.class.name": "com.example.Ours"}, "authorizer.class.name"),
        ({**CONFIG, "super.users": "alice"}, "super.users"),
    ],
)
def test_what_cannot_be_kept_refuses_the_start_by_name(tmp_path: Path, config: dict[str, Any], named: str) -> None:
    with pytest.raises(StratalogError, match=named):
        Broker(tmp_path / "data", config=config)


def test_no_name_of_a_client_begins_a_second_line_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    peer = Peer(Listener("", 9092), principal=Principal("User", "eve\nPrincipal = User:alice is Allowed"))
    access = AccessControl(Authorizer())
    assert not access.allows(peer, ApiKey.PRODUCE, AclOperation.WRITE, ResourceType.TOPIC, "orders\nx")
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.isprintable()
    assert line.startswith("Principal = User:eve\\nPrincipal = User:alice is Allowed is Denied operation")


@pytest.mark.parametrize("form", ["text", "json"])
def test_what_is_denied_is_logged_at_info_and_what_is_allowed_at_debug(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    config = {**CONFIG, "stratalog.authorizer.log.format": form}
    with Broker(tmp_path, config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        make_topic(wire, "orders")
        assert produce(wire, "orders") == produce(wire, "orders") == 0
        create(wire, rule("orders", WRITE, Permission.DENY))
        produce(wire, "orders")
    lines = [(each.levelname, each.getMessage()) for each in caplog.records if each.name == "kafka.authorizer.logger"]
    matched = (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=orders, patternType=LITERAL, "
        "principal=User:ANONYMOUS, host=*, operation=WRITE, permissionType=DENY])"
    )
    if form == "text":
        of_produce = [line for line in lines if "for request = Produce" in line[1]]
        begin, end = "Principal = User:ANONYMOUS is ", " from host = 127.0.0.1 on resource = Topic:LITERAL:orders"
        end += " for request = Produce with resourceRefCount = 1 based on rule "
        assert of_produce == [
            ("DEBUG", f"{begin}Allowed operation = WRITE{end}DefaultAllow"),
            ("DEBUG", f"{begin}Allowed operation = WRITE{end}DefaultAllow"),
            ("INFO", f"{begin}Denied operation = WRITE{end}{matched}"),
        ]
    else:
        read = [(level, json.loads(text)) for level, text in lines]
        (denied,) = [each for level, each in read if level == "INFO"]
        assert denied == {
            "principal": "User:ANONYMOUS", "allowed": False, "operation": "WRITE", "host": "127.0.0.1",
            "listener": "PLAINTEXT", "resourceType": "TOPIC", "patternType": "LITERAL", "resourceName": "orders",
            "request": "Produce", "resourceRefCount": 1, "rule": matched,
        }  # fmt: skip
