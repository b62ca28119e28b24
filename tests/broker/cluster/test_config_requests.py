"""Changes of configs through a broker of a cluster: what it does itself, refuses, and forwards to the controllers.

Source: `ConfigAdminManager` of Kafka 4.4.0.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from tests.broker.cluster.test_secured_member import CLUSTER_ID, NODE, SECURED, connect, settings
from tests.support.authority import Authority
from tests.support.kraft_cluster import low_port
from tests.support.model_quorum import ModelQuorum

from stratalog.broker.server import Broker
from stratalog.engine.dirs import format_dir
from stratalog.wire import ApiKey

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8
SET: Final = 0
OK, UNKNOWN_SERVER_ERROR, CLUSTER_FORBIDDEN, INVALID_REQUEST = 0, -1, 31, 42
LOGGER: Final = "tests.levels.of.a.cluster"
FROM_THE_CONTROLLER: Final = "from the controller"
LOCATION: Final = "listener.name.outside.ssl.keystore.location"
ONCE: Final = (INVALID_REQUEST, "Each resource must appear at most once.")


@pytest.fixture
def level() -> Iterator[logging.Logger]:
    found = logging.getLogger(LOGGER)
    found.setLevel(logging.ERROR)
    yield found
    found.setLevel(logging.NOTSET)


class Controllers:
    """Answers every resource that reaches it, in reverse order, and keeps their names."""

    def __init__(self, quorum: ModelQuorum) -> None:
        self.reached: list[tuple[int, str]] = []
        self.omitted: set[str] = set()
        for key, version in ((ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), (ApiKey.ALTER_CONFIGS, 2)):
            quorum.versions[key] = version
            quorum.answers[key] = self._answer

    def _answer(self, request: Any) -> dict[str, Any]:
        found = [(int(each.resource_type), str(each.resource_name)) for each in request.resources]
        self.reached += found
        return {
            "responses": [
                {"resource_type": type_, "resource_name": name, "error_code": 0, "error_message": FROM_THE_CONTROLLER}
                for type_, name in reversed(found)
                if name not in self.omitted
            ]
        }


@pytest.fixture
def quorum() -> Iterator[ModelQuorum]:
    with ModelQuorum(CLUSTER_ID, authorizer=True, super_users=("User:admin",)) as quorum:
        yield quorum


@pytest.fixture
def controllers(quorum: ModelQuorum) -> Controllers:
    return Controllers(quorum)


@pytest.fixture
def broker(quorum: ModelQuorum, controllers: Controllers, tmp_path: Path) -> Iterator[Broker]:
    del controllers  # it says which requests the broker may forward
    data_dir = tmp_path / "data"
    format_dir(data_dir, cluster_id=CLUSTER_ID, node_id=NODE)
    with Broker(data_dir=data_dir, config=settings(quorum, data_dir)) as broker:
        yield broker


def config(name: str, value: str | None, operation: int = SET) -> dict[str, Any]:
    return {"name": name, "config_operation": operation, "value": value}


def resource(type_: int, name: str, *configs: dict[str, Any]) -> dict[str, Any]:
    return {"resource_type": type_, "resource_name": name, "configs": list(configs)}


def change(broker: Broker, user: str, *resources: dict[str, Any], validate_only: bool = False) -> list[Any]:
    key = ApiKey.INCREMENTAL_ALTER_CONFIGS
    with closing(connect(broker, user)) as client:
        reported = client.call(key, (1, 1), resources=list(resources), validate_only=validate_only)
    names = [(int(each.resource_type), each.resource_name) for each in reported.responses]
    assert names == [(each["resource_type"], each["resource_name"]) for each in resources], "in the request's order"
    return [(int(each.error_code), each.error_message) for each in reported.responses]


def test_a_broker_changes_its_own_loggers_and_forwards_the_rest(
    broker: Broker, controllers: Controllers, level: logging.Logger
) -> None:
    assert change(
        broker,
        "admin",
        resource(TOPIC, "orders", config("retention.ms", "1")),
        resource(BROKER_LOGGER, str(NODE), config(LOGGER, "DEBUG")),
        resource(BROKER_LOGGER, "8", config(LOGGER, "FATAL")),
        resource(BROKER, "8", config("log.cleaner.threads", "1")),
        resource(BROKER, str(NODE), config("log.retention.ms", "no number")),
        resource(BROKER, "", config("log.retention.ms", "70000")),
        resource(77, "what"),
        resource(TOPIC, "twice", config("a", "1"), config("a", "2")),
    ) == [
        (OK, FROM_THE_CONTROLLER),
        (OK, None),
        (INVALID_REQUEST, f"Unexpected node id. Expected {NODE}, but received 8"),
        (INVALID_REQUEST, f"Unexpected broker id, expected {NODE}, but received 8"),
        (
            INVALID_REQUEST,
            "Invalid value no number for configuration log.retention.ms: Not a number of type LONG",
        ),
        (OK, FROM_THE_CONTROLLER),
        (INVALID_REQUEST, "Unknown resource type 77"),
        (INVALID_REQUEST, "Error due to duplicate config keys"),
    ]
    assert level.level == logging.DEBUG
    assert controllers.reached == [(TOPIC, "orders"), (BROKER, "")]


def test_loggers_alone_need_no_controller(broker: Broker, controllers: Controllers, level: logging.Logger) -> None:
    own = resource(BROKER_LOGGER, str(NODE), config(LOGGER, "TRACE"))
    assert change(broker, "admin", own, validate_only=True) == [(OK, None)]
    assert level.level == logging.ERROR
    assert change(broker, "admin", own, own) == [ONCE, ONCE]
    assert level.level == logging.ERROR
    assert change(broker, "admin", own) == [(OK, None)]
    assert level.level == 5
    assert controllers.reached == []


def test_the_broker_authorizes_for_its_loggers_and_the_controller_for_the_rest(
    broker: Broker, controllers: Controllers, level: logging.Logger
) -> None:
    own = resource(BROKER_LOGGER, str(NODE), config(LOGGER, "TRACE"))
    assert change(broker, "alice", own, resource(TOPIC, "orders", config("retention.ms", "1"))) == [
        (CLUSTER_FORBIDDEN, None),
        (OK, FROM_THE_CONTROLLER),
    ]
    assert level.level == logging.ERROR
    assert controllers.reached == [(TOPIC, "orders")]


def test_a_resource_that_the_controller_does_not_answer_has_failed(
    quorum: ModelQuorum, broker: Broker, controllers: Controllers, level: logging.Logger
) -> None:
    text = "The server experienced an unexpected error when processing the request."
    own = resource(BROKER_LOGGER, str(NODE), config(LOGGER, "INFO"))
    controllers.omitted.add("lost")
    wanted = resource(TOPIC, "lost", config("retention.ms", "1"))
    assert change(broker, "admin", wanted, own) == [(UNKNOWN_SERVER_ERROR, text), (OK, None)]
    quorum.envelope_errors.append(UNKNOWN_SERVER_ERROR)
    assert change(broker, "admin", wanted, own) == [(UNKNOWN_SERVER_ERROR, None), (OK, None)]
    assert level.level == logging.INFO


def test_the_request_of_old_clients_has_no_loggers(broker: Broker, controllers: Controllers) -> None:
    asked = [
        {"resource_type": type_, "resource_name": str(NODE), "configs": [{"name": "retention.ms", "value": value}]}
        for type_, value in ((BROKER_LOGGER, "INFO"), (TOPIC, "1"), (TOPIC, None))
    ]
    asked[2]["resource_name"] = "orders"
    with closing(connect(broker, "admin")) as client:
        reported = client.call(ApiKey.ALTER_CONFIGS, (2, 2), resources=asked, validate_only=False)
    assert [(int(each.error_code), each.error_message) for each in reported.responses] == [
        (INVALID_REQUEST, "Unknown resource type 8"),
        (OK, FROM_THE_CONTROLLER),
        (INVALID_REQUEST, "Null value not supported for : retention.ms"),
    ]
    assert controllers.reached == [(TOPIC, str(NODE))]


def test_a_key_store_that_cannot_be_used_does_not_reach_the_controller(
    quorum: ModelQuorum, controllers: Controllers, tmp_path: Path
) -> None:
    authority = Authority()
    first = authority.issue("broker").write_pem(tmp_path / "first.pem")
    second = authority.issue("broker").write_pem(tmp_path / "second.pem")
    other = authority.issue("another").write_pem(tmp_path / "other.pem")
    missing, no_store = tmp_path / "missing.pem", tmp_path / "no-store.pem"
    no_store.write_text("no key, no certificate")
    data_dir = tmp_path / "data"
    format_dir(data_dir, cluster_id=CLUSTER_ID, node_id=NODE)
    configured = {
        **settings(quorum, data_dir),
        "listeners": f"CLIENTS://127.0.0.1:{low_port()},OUTSIDE://127.0.0.1:{low_port()}",
        "listener.security.protocol.map": f"{SECURED['listener.security.protocol.map']},OUTSIDE:SSL",
        "listener.name.outside.ssl.keystore.type": "PEM",
        LOCATION: str(first),
    }
    with Broker(data_dir=data_dir, config=configured) as broker:
        for path, said in ((missing, LOCATION), (no_store, LOCATION), (other, "DistinguishedName")):
            for validate_only in (True, False):
                asked = resource(BROKER, str(NODE), config(LOCATION, str(path)))
                [(code, message)] = change(broker, "admin", asked, validate_only=validate_only)
                assert (code, said in message) == (INVALID_REQUEST, True), (path, message)
            # AlterConfigs replaces all values, so that it has to name the store alone
            value = {"name": LOCATION, "value": str(path)}
            old = {"resource_type": BROKER, "resource_name": str(NODE), "configs": [value]}
            with closing(connect(broker, "admin")) as client:
                reported = client.call(ApiKey.ALTER_CONFIGS, (2, 2), resources=[old], validate_only=False)
            assert int(reported.responses[0].error_code) == INVALID_REQUEST
        assert controllers.reached == []
        # no file is opened for a client without the right: the controller is the one to refuse
        asked = resource(BROKER, str(NODE), config(LOCATION, str(missing)))
        assert change(broker, "alice", asked) == [(OK, FROM_THE_CONTROLLER)]
        controllers.reached.clear()
        for validate_only in (True, False):
            asked = resource(BROKER, str(NODE), config(LOCATION, str(second)))
            assert change(broker, "admin", asked, validate_only=validate_only) == [(OK, FROM_THE_CONTROLLER)]
    assert controllers.reached == [(BROKER, str(NODE))] * 2
