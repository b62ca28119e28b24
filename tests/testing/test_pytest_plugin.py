"""The fixtures that stratalog gives to the tests of others, as pytest finds them."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from stratalog.broker.server import Broker
from stratalog.errors import TopicAlreadyExistsError
from stratalog.testing.clock import ManualClock

TESTS = """
import pytest
from confluent_kafka import Consumer, Producer

@pytest.fixture(scope="session")
def stratalog_config():
    return {"num.partitions": 3}

@pytest.mark.parametrize("value", ["a b/c", "ü" * 300])
def test_a_record_comes_back(stratalog_broker, stratalog_topic, value):
    producer = Producer({"bootstrap.servers": stratalog_broker.bootstrap_servers})
    producer.produce(stratalog_topic, value.encode())
    assert producer.flush(30) == 0
    consumer = Consumer({
        "bootstrap.servers": stratalog_broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"
    })
    consumer.subscribe([stratalog_topic])
    message = consumer.poll(30)
    consumer.close()
    assert message.value().decode() == value

def test_the_settings_are_those_of_the_fixture(stratalog_broker):
    assert stratalog_broker.services.config["num.partitions"] == 3
    assert len(list(stratalog_broker.services.metadata.topics())) >= 2

def test_without_a_broker():
    pass
"""


def run_pytest(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments, str(path)]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)


def test_a_test_gets_a_broker_and_a_topic_of_its_own(tmp_path: Path) -> None:
    (tests := tmp_path / "test_orders.py").write_text(TESTS)
    done = run_pytest(tests)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_a_run_that_asks_for_no_broker_loads_none(tmp_path: Path) -> None:
    (tests := tmp_path / "test_nothing.py").write_text(
        "import sys\ndef test_it(): assert not {'numba', 'stratalog.broker.server.server'} & set(sys.modules)\n"
    )
    done = run_pytest(tests)
    assert done.returncode == 0, done.stdout


def test_pytest_finds_the_fixtures_where_stratalog_is_installed() -> None:
    (found,) = entry_points(group="pytest11", name="stratalog")
    assert found.value == "stratalog.testing.pytest_plugin"


def test_a_broker_for_tests_takes_other_settings_a_clock_and_topics() -> None:
    with Broker.testing({"offsets.topic.num.partitions": 2}, clock=ManualClock()) as broker:
        assert broker.services.config["offsets.topic.num.partitions"] == 2
        assert broker.services.config["group.initial.rebalance.delay.ms"] == 0
        broker.create_topic("orders", 2, {"retention.ms": "1000"})
        assert broker.services.partition("orders", 1) is not None
        with pytest.raises(TopicAlreadyExistsError):
            broker.create_topic("orders")
