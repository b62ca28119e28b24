"""What stops a broker from joining a cluster before any controller is asked, each in one line; and formatting."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from uuid import UUID

import pytest
from tests.broker.cluster.fake_controllers import batch_of
from tests.support.certificate import make_certificate

from stratalog.broker.cluster.member import ClusterMember, formatted_cluster_id
from stratalog.broker.cluster.metadata_batches import decode_batches
from stratalog.broker.cluster.settings import ClusterSettings
from stratalog.cli import main as cli
from stratalog.config import BrokerConfig, refuse_unkept
from stratalog.engine.dirs import DataDir, format_dir
from stratalog.errors import InvalidConfigError, StratalogError, UsageError
from stratalog.log.format import CLEAN_SHUTDOWN
from stratalog.wire.client import Sasl
from stratalog.wire.metadata_records import MetadataRecord, NoOpRecord, TopicRecord

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
OTHER_ID = "QlVyk3RvQ9-abcdefghijA"


def properties(data_dir: Path, **changes: str | None) -> dict[str, str]:
    values: dict[str, str | None] = {
        "process.roles": "broker",
        "node.id": "7",
        "controller.quorum.bootstrap.servers": "c1:9093,c2:9094",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://h:9092",
        "log.dirs": str(data_dir),
        "initial.broker.registration.timeout.ms": "0",
    }
    values |= {name.replace("__", "."): value for name, value in changes.items()}
    return {name: value for name, value in values.items() if value is not None}


def settings(data_dir: Path, **changes: str | None) -> ClusterSettings:
    return ClusterSettings.of(BrokerConfig.from_properties(properties(data_dir, **changes)))


def test_settings_are_kafkas(tmp_path: Path) -> None:
    read = settings(tmp_path, controller__quorum__voters="100@c3:1", broker__rack="r")
    assert read.bootstrap == (("c1", 9093), ("c2", 9094))
    assert read.voters == {100: ("c3", 1)}
    assert [(each.name, each.host, each.port, each.protocol) for each in read.listeners] == [
        ("PLAINTEXT", "h", 9092, 0)
    ]
    assert (read.node_id, read.rack, read.heartbeat_s, read.controller_listener) == (7, "r", 2.0, "CONTROLLER")
    assert read.connection.protocol.value == "PLAINTEXT"


def test_controllers_behind_sasl_have_their_own_settings(tmp_path: Path) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="p";'
    changes = {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.jaas.config": jaas,
    }
    read = settings(tmp_path, **changes)
    assert read.connection.protocol.value == "SASL_PLAINTEXT"
    assert read.connection.sasl is not None
    assert (read.connection.sasl.mechanism, read.connection.sasl.username) == ("PLAIN", "b")


def test_the_login_of_a_broker_stands_under_its_mechanism_as_in_kafka(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    changes = {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.controller.scram-sha-512.sasl.jaas.config": f'{module} username="c" password="p";',
        "listener.name.controller.sasl.jaas.config": f'{module} username="x" password="y";',
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": f'{module} username="b" password="q";',
    }
    read = settings(tmp_path, **changes)
    assert read.connection.sasl == Sasl("SCRAM-SHA-512", "c", "p")
    assert read.brokers_connection.sasl == Sasl("SCRAM-SHA-256", "b", "q")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"node.id": None}, "needs node.id"),
        ({"log.dirs": None}, "needs log.dirs"),
        ({"controller.listener.names": None}, "needs controller.listener.names"),
        (
            {"listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"},
            "listeners=CONTROLLER://127.0.0.1:9093: controller.listener.names names it",
        ),
        ({"controller.quorum.bootstrap.servers": None}, "needs controller.quorum.bootstrap.servers"),
        ({"controller.quorum.bootstrap.servers": "c1"}, "c1: expected HOST:PORT"),
        ({"controller.quorum.voters": "c1:9"}, "c1:9: expected ID@HOST:PORT"),
        (
            {"listener.security.protocol.map": "CONTROLLER:SASL_SSL,PLAINTEXT:PLAINTEXT"},
            "sasl.mechanism.controller.protocol is not set, and Kafka's default GSSAPI",
        ),
        *(
            (
                {
                    "listener.security.protocol.map": f"{listener}:SASL_PLAINTEXT,{other}:PLAINTEXT",
                    "sasl.mechanism.controller.protocol": mechanism,
                    "sasl.mechanism.inter.broker.protocol": mechanism,
                },
                rf"sasl\.mechanism\.{of}\.protocol={mechanism} is not supported.*listener {listener}.*OAUTHBEARER;",
            )
            for listener, other, of in (
                ("CONTROLLER", "PLAINTEXT", "controller"),
                ("PLAINTEXT", "CONTROLLER", "inter.broker"),
            )
            for mechanism in ("EXTERNAL", "GSSAPI")
        ),
        (
            {
                "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
                "sasl.mechanism.controller.protocol": "PLAIN",
            },
            "listener.name.controller.sasl.jaas.config is not set: PLAIN needs a login module",
        ),
        (
            {
                "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
                "listener.name.controller.ssl.truststore.location": "/no/such/file",
            },
            "listener.name.controller.ssl.truststore.location=/no/such/file: cannot be read",
        ),
        ({"remote.log.storage.system.enable": "true"}, "needs stratalog.remote.url, the object store that all brokers"),
        ({"log.segment.bytes": "2147483648"}, "in a cluster no segment may pass 2147483647 bytes"),
        ({"listeners": "PLAINTEXT://:9092"}, "needs an address that others reach"),
        ({"listeners": "PLAINTEXT://h:0"}, "needs an address that others reach"),
    ],
)
def test_a_setting_that_is_missing_or_wrong_is_named(
    tmp_path: Path, changes: dict[str, str | None], words: str
) -> None:
    with pytest.raises((UsageError, InvalidConfigError), match=words):
        settings(tmp_path, **changes)


def test_key_stores_of_listeners_are_those_of_the_way_to_other_nodes(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    identity = tmp_path / "identity.pem"
    identity.write_text(made.key.read_text() + made.certificate.read_text())
    store = tmp_path / "identity.p12"
    names = ["-inkey", str(made.key), "-in", str(made.certificate), "-out", str(store), "-passout", "pass:secret"]
    subprocess.run(["openssl", "pkcs12", "-export", *names], check=True, capture_output=True)
    changes = {
        "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(made.certificate),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(identity),
        "ssl.endpoint.identification.algorithm": "",
        "listener.name.controller.ssl.keystore.type": "PKCS12",
        "listener.name.controller.ssl.keystore.location": str(store),
        "listener.name.controller.ssl.keystore.password": "secret",
    }
    read = settings(tmp_path, **changes)
    assert (read.brokers_connection.tls.keystore_path, read.brokers_connection.tls.checks_host) == (
        str(identity),
        False,
    )
    assert "BEGIN CERTIFICATE" in str(read.connection.tls.certificate_text)
    changes["listener.name.controller.ssl.keystore.password"] = "wrong"
    with pytest.raises(InvalidConfigError, match=r"listener\.name\.controller\.ssl\.keystore\.password is wrong"):
        settings(tmp_path, **changes)


def test_a_shared_store_and_large_segments_are_settings_of_a_cluster(tmp_path: Path) -> None:
    read = settings(
        tmp_path,
        remote__log__storage__system__enable="true",
        stratalog__remote__url="s3://bucket/prefix",
        log__segment__bytes="4294967296",
        stratalog__large__segments="true",
    )
    assert (read.is_tiering, read.large_segments) == (True, True)
    plain = settings(tmp_path)
    assert (plain.is_tiering, plain.large_segments) == (False, False)


def test_several_controllers_are_for_a_broker_of_their_cluster(tmp_path: Path) -> None:
    voters = {"controller.quorum.voters": "1@a:9093,2@b:9093"}
    refuse_unkept(properties(tmp_path, **voters))
    for roles in (None, "broker,controller"):
        with pytest.raises(UsageError, match=r"names several controllers.* set process.roles=broker"):
            refuse_unkept(properties(tmp_path, **voters, **{"process.roles": roles}))


def join(data_dir: Path) -> str:
    """Return why a member does not join."""
    with pytest.raises(StratalogError) as refused:
        ClusterMember(settings(data_dir), lambda _delta, _image: None)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_directory_that_is_not_formatted_is_left_alone(tmp_path: Path) -> None:
    assert "is not formatted; run 'stratalog storage format" in join(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_directory_may_be_new_beside_one_that_is_formatted(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    format_dir(first, cluster_id=CLUSTER_ID, node_id=7)
    (second / "lost+found").mkdir(parents=True)
    assert formatted_cluster_id((first, second, tmp_path / "third")) == CLUSTER_ID
    (second / "orders-0").mkdir()
    for paths in ((first, second), (tmp_path / "third", first)):
        with pytest.raises(UsageError, match="is not formatted"):
            formatted_cluster_id(paths)


def test_a_directory_of_another_node_is_left_alone(tmp_path: Path) -> None:
    format_dir(tmp_path, cluster_id=CLUSTER_ID, node_id=8)
    before = sorted(path.name for path in tmp_path.iterdir())
    assert "node.id is 8, expected 7" in join(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_directory_of_a_broker_without_a_cluster_is_left_alone(tmp_path: Path) -> None:
    format_dir(tmp_path, cluster_id=CLUSTER_ID, node_id=7)
    (tmp_path / "stratalog.sqlite").write_bytes(b"")
    assert "holds the topics of a broker without a cluster" in join(tmp_path)


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    for name, cluster_id in (("a", CLUSTER_ID), ("b", OTHER_ID)):
        format_dir(tmp_path / name, cluster_id=cluster_id, node_id=7)
    read = settings(tmp_path, **{"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"})
    with pytest.raises(StratalogError, match="belong to several clusters"):
        ClusterMember(read, lambda _delta, _image: None)


def test_a_start_that_fails_leaves_the_epoch_of_the_clean_stop(tmp_path: Path) -> None:
    format_dir(tmp_path, cluster_id=CLUSTER_ID, node_id=7)
    opened = DataDir.open(tmp_path, cluster_id=CLUSTER_ID, node_id=7)
    opened.close(clean=True, broker_epoch=44)
    member = ClusterMember(settings(tmp_path), lambda _delta, _image: None)
    with pytest.raises(UsageError, match="no controller has sent the metadata of the cluster; asked were c1:9093"):
        member.join()
    member.close()
    assert json.loads((tmp_path / CLEAN_SHUTDOWN).read_text()) == {"version": 0, "brokerEpoch": 44}


@pytest.mark.parametrize(("live", "reported"), [(2, 44), (1, -1)])
def test_a_broker_without_one_of_its_directories_does_not_say_that_it_stopped_cleanly(
    tmp_path: Path, live: int, reported: int
) -> None:
    """The controller would trust it to have the replicas of the missing directory."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        format_dir(path, cluster_id=CLUSTER_ID, node_id=7)
        DataDir.open(path, cluster_id=CLUSTER_ID, node_id=7).close(clean=True, broker_epoch=44)
    opened = [DataDir.open(path, cluster_id=CLUSTER_ID, node_id=7) for path in paths[:live]]
    read = settings(tmp_path, **{"log.dirs": ",".join(map(str, paths))})
    member = ClusterMember(read, lambda _delta, _image: None, dirs=opened)
    assert member.lifecycle._registration.previous_broker_epoch == reported
    member.close()
    for each in opened:
        each.close(clean=False)


def test_a_heartbeat_reports_the_metadata_whose_publication_has_ended(tmp_path: Path) -> None:
    """Up to there the controller counts on this broker, when it unfences it or lets it go."""
    format_dir(tmp_path, cluster_id=CLUSTER_ID, node_id=7)
    published: list[tuple[int, int]] = []
    member = ClusterMember(
        settings(tmp_path),
        lambda _delta, image: published.append((image.offset, member.lifecycle._applied_offset())),
    )

    def load(offset: int, record: MetadataRecord) -> None:
        for each in decode_batches(batch_of([record], offset=offset, epoch=1)):
            member._loader.load(each)

    load(0, TopicRecord(name="t", topic_id=UUID(int=1000)))
    assert member.lifecycle._applied_offset() == -1
    member._loader.caught_up()
    load(1, TopicRecord(name="u", topic_id=UUID(int=1001)))
    load(2, NoOpRecord())
    assert published == [(0, -1), (1, 0)]
    assert member.lifecycle._applied_offset() == 2
    member.close()


# --- stratalog storage format -----------------------------------------------------------------------------------------


def test_directories_are_formatted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=7\nlog.dirs={tmp_path / 'a'},{tmp_path / 'b'}\n")
    arguments = ["storage", "format", "--cluster-id", CLUSTER_ID, "--config", str(file)]
    assert cli.run(arguments) == 0
    for name in ("a", "b"):
        text = (tmp_path / name / "meta.properties").read_text()
        assert f"cluster.id={CLUSTER_ID}\n" in text
        assert "node.id=7\n" in text
    assert cli.run(arguments) == 2
    assert "already formatted. Use --ignore-formatted" in capsys.readouterr().err
    before = (tmp_path / "a" / "meta.properties").read_text()
    assert cli.run([*arguments, "--ignore-formatted"]) == 0
    assert (tmp_path / "a" / "meta.properties").read_text() == before


@pytest.mark.parametrize(
    ("cluster_id", "text", "words"),
    [
        ("no id", "node.id=7\nlog.dirs=d\n", "expected the id of a cluster"),
        (CLUSTER_ID, "log.dirs=d\n", "node.id is not set"),
        (CLUSTER_ID, "node.id=7\n", "log.dirs is not set"),
    ],
)
def test_a_format_that_cannot_be_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cluster_id: str, text: str, words: str
) -> None:
    file = tmp_path / "server.properties"
    file.write_text(text)
    assert cli.run(["storage", "format", "--cluster-id", cluster_id, "--config", str(file)]) == 2
    assert words in capsys.readouterr().err
