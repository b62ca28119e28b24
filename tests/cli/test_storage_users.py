"""`storage format --add-scram`: a broker whose first user is there before its first start."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.support.reference_kafka import free_port

from stratalog.broker.security.scram_argument import parse_scram_argument
from stratalog.broker.server.server import Broker
from stratalog.cli.main import run
from stratalog.config.properties_file import parse_properties
from stratalog.errors import UsageError

ID = "5L6g3nShT-eMCtK--X86sw"


def test_the_first_user_is_there_before_the_first_start(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    port = free_port()
    file.write_text(
        f"node.id=1\nlog.dirs={tmp_path}/data\nlisteners=SASL_PLAINTEXT://127.0.0.1:{port}\n"
        "sasl.enabled.mechanisms=SCRAM-SHA-512\n"
    )
    user = "SCRAM-SHA-512=[name=alice,password=alice-secret]"
    assert run(["storage", "format", "-t", ID, "-c", str(file), "--add-scram", user]) == 0
    with Broker(config=parse_properties(file.read_text(), "f")) as broker:
        options = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
        assert AdminClient(options).list_topics(timeout=30).cluster_id == ID


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("PLAIN=[name=a,password=hush]", "expected SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("SCRAM-SHA-256=name=a", "expected SCRAM"),
        ("SCRAM-SHA-256=[password=hush]", "name is not set"),
        ("SCRAM-SHA-256=[name=a]", "the password of a is not set"),
        ("SCRAM-SHA-256=[name=a,password=hush,iterations=1]", "expected 4096 to 16384"),
        ("SCRAM-SHA-256=[name=a,saltedpassword=hush]", "needs a salt"),
        ("SCRAM-SHA-256=[name=a,salt=??,password=hush]", "salt is not base64"),
        ("SCRAM-SHA-256=[name=a,passwort=hush]", "expected iterations"),
    ],
)
def test_what_makes_no_user_is_refused_and_no_password_shown(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        parse_scram_argument(text)
    assert "hush" not in str(raised.value)


def test_a_quoted_password_may_hold_anything() -> None:
    _, _, first = parse_scram_argument('SCRAM-SHA-256=[name=a,password="x,y=\\"z\\"",salt=c2FsdA==]')
    _, _, second = parse_scram_argument("SCRAM-SHA-256=[name=a,password=other,salt=c2FsdA==]")
    assert first.salt == second.salt == b"salt"
    assert first.stored_key != second.stored_key
