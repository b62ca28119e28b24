"""The commands of the guides that are asked for by a question, carried out as they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, unquote

import pytest

from stratalog.broker.server.server import Broker
from stratalog.cli.main import run
from tests.remote.storage.stub_store import Answer, StubStore
from tests.support.guide import DOCS, Guide
from tests.support.tiered_broker import (
    eventually,
    fill,
    partition_of,
    tiered,
    tiered_and_copied,
    tiering_broker,
    values,
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def broker(home: Path) -> Iterator[Broker]:
    """A broker whose topic `orders` is in the bucket, and a group that has read one record of it."""
    with tiering_broker(home / "data", (home / "bucket").as_uri()) as broker:
        tiered_and_copied(broker, "orders")
        reset = ["groups", "reset-offsets", "billing", "--topic", "orders:0", "--to-offset", "1", "--execute"]
        assert run([*reset, "-b", broker.bootstrap_servers]) == 0
        yield broker


def guide(page: str, home: Path, broker: Broker | None = None) -> Guide:
    places = {
        "/var/lib/stratalog": str(home / "data"),
        "s3://bucket/tiered": (home / "bucket").as_uri(),
        "/srv/copy": str(home / "copy"),
    }
    if broker is not None:
        places["127.0.0.1:9092"] = broker.bootstrap_servers
    return Guide(f"how-to/{page}.md", places)


@pytest.mark.soak
def test_what_to_do_when_the_disk_is_nearly_full_and_why_a_record_is_still_there(
    broker: Broker, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    full = guide("disk_full", home, broker)
    for command in ("log-dirs", "retention explain", "tier status", "retention explain", "configs alter"):
        full.do(f"stratalog {command}")
    assert partition_of(broker, "orders").log.config.retention_bytes == 1 << 30
    why = guide("why_is_this_record_still_there", home, broker)
    why.do("stratalog retention explain")
    capsys.readouterr()
    why.do("stratalog consume orders -o")
    assert capsys.readouterr().out.split() == ["0", "1", "2"]
    why.do("stratalog retention explain")
    why.do("stratalog consume orders -e")
    why.do("stratalog topics create")
    why.do("stratalog produce")
    assert why.rest == []
    assert values(partition_of(broker, "orders-kept")) == [b"0", b"1", b"2"]
    broker.close()
    full.do("stratalog fsck")
    assert full.rest == []


@pytest.mark.soak
def test_a_segment_that_is_damaged_is_found_and_mended(broker: Broker, home: Path) -> None:
    damaged = guide("damaged_segment", home, broker)
    partition = home / "data" / "orders-0"
    fill(partition_of(broker, "orders"), 1)
    eventually(lambda: partition_of(broker, "orders").log.highest_offset_in_remote_storage == 3)
    broker.close()
    (index,) = partition.glob("*3.timeindex")
    index.unlink()
    damaged.do("stratalog fsck", expected=1)
    (log,) = partition.glob("*3.log")
    (home / "data" / "orders-0" / f"{0:020d}.log").symlink_to(log)
    damaged.do("stratalog dump")
    (home / "data" / "orders-0" / f"{0:020d}.log").unlink()
    damaged.do("stratalog fsck")
    assert index.exists()
    damaged.do("stratalog tier audit")
    with tiering_broker(home / "data", (home / "bucket").as_uri()) as again:
        rest = guide("damaged_segment", home, again)
        rest.do("stratalog configs alter")
        rest.do("stratalog groups reset-offsets")


@pytest.mark.soak
def test_an_upgrade_and_the_way_back(broker: Broker, home: Path) -> None:
    upgrade = guide("upgrade", home, broker)
    for command in ("metadata export", "topics list", "tier status", "features describe", "features upgrade"):
        upgrade.do(f"stratalog {command}")
    broker.close()
    for command in ("metadata check", "metadata import"):
        upgrade.do(f"stratalog {command}")
    assert upgrade.rest == [  # these change the machine
        "/opt/stratalog/bin/pip install --upgrade 'stratalog[web]'",
        "systemctl start stratalog",
    ]
    with tiering_broker(home / "data", (home / "bucket").as_uri()) as again:
        assert values(partition_of(again, "orders")) == [b"0", b"1", b"2"]


def test_metadata_is_backed_up_checked_and_brought_back(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = guide("back_up", home)
    with Broker(data_dir=home / "data") as broker:
        broker.create_topic("orders", 2, {"retention.ms": "5000"})
        page.do("stratalog metadata export")
        broker.create_topic("later")
    page.do("stratalog metadata check")
    capsys.readouterr()
    page.do("stratalog metadata check", expected=1)
    assert "the document has no topic later" in capsys.readouterr().out
    page.do("stratalog metadata import")
    assert page.rest == []
    with Broker(data_dir=home / "data") as again:
        assert [each.name for each in again.services.metadata.topics()] == ["orders"]
        known = again.services.metadata.topic("orders")
        assert known is not None
        assert (known.partition_count, known.configs) == (2, {"retention.ms": "5000"})


@pytest.mark.soak
def test_what_a_topic_uses_today(broker: Broker, home: Path) -> None:
    size = guide("size_a_machine", home, broker)
    size.do("stratalog log-dirs")
    size.do("stratalog retention")
    assert size.rest == []


@pytest.mark.soak
def test_two_clusters_and_a_bucket(broker: Broker, home: Path) -> None:
    two = guide("two_clusters_one_bucket", home, broker)
    assert [line.partition("=")[0] for line in two.rest[:2]] == ["stratalog.remote.url"] * 2
    two.do("stratalog tier owner s3://bucket/tiered")
    two.do("stratalog tier restore")
    serve = two.take("stratalog serve")
    with tiering_broker(home / "copy", re.findall(r"remote\.url=(\S+)", serve)[0]) as copy:
        assert values(partition_of(copy, "orders")) == [b"0", b"1", b"2"]
    broker.close()
    two.do("stratalog tier owner s3://bucket/tiered --take-over")
    with tiering_broker(home / "copy", (home / "bucket").as_uri()) as owner:
        fill(partition_of(owner, "orders"), 1)
        eventually(lambda: partition_of(owner, "orders").log.highest_offset_in_remote_storage == 3)


# --- permissions ------------------------------------------------------------------------------------------------------


def action_of(request: str) -> str:
    """The permission that AWS asks for a request."""
    method, target = request.split(" ", 1)
    path, _, query = target.partition("?")
    on_bucket = path.strip("/").count("/") == 0
    if on_bucket and method == "GET":
        return "s3:ListBucketMultipartUploads" if re.search(r"(^|&)uploads", query) else "s3:ListBucket"
    if method == "DELETE":
        return "s3:AbortMultipartUpload" if "uploadId" in query else "s3:DeleteObject"
    if method == "POST" and re.search(r"(^|&)delete", query):
        return "s3:DeleteObject"
    return {"GET": "s3:GetObject", "HEAD": "s3:GetObject", "PUT": "s3:PutObject", "POST": "s3:PutObject"}[method]


def listing(stub: StubStore, request: str) -> Answer | None:
    """The objects below a prefix, as S3 lists them."""
    method, target = request.split(" ", 1)
    if method != "GET" or "list-type=2" not in target:
        return None
    bucket, _, query = target.partition("?")
    prefix = parse_qs(query).get("prefix", [""])[0]
    keys = [unquote(path).removeprefix(f"{bucket.rstrip('/')}/") for path in stub.objects]
    contents = "".join(
        f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag>"
        f"<Size>{len(stub.objects[path])}</Size></Contents>"
        for key, path in zip(keys, stub.objects, strict=True)
        if key.startswith(prefix)
    )
    return Answer(200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode())


def test_a_broker_asks_for_no_more_than_the_policy_permits(broker: Broker, home: Path, tmp_path: Path) -> None:
    page = (DOCS / "how-to" / "bucket_permissions.md").read_text()
    (policy,) = re.findall(r"^```json\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    permitted = {action for statement in json.loads(policy)["Statement"] for action in statement["Action"]}
    with StubStore() as stub:
        stub.fail = lambda request: listing(stub, request)
        url, options = stub.url_and_options("s3")
        keys = {f"stratalog.remote.s3.{name.replace('_', '.')}": value for name, value in options.items()}
        keys = {key: value for key, value in keys.items() if key.endswith(("endpoint", "region", "id", "key"))}
        with tiering_broker(tmp_path / "s3", url, keys) as on_s3:
            tiered(on_s3, "orders")
            eventually(lambda: partition_of(on_s3, "orders").log.highest_offset_in_remote_storage == 2)
        asked = {action_of(each) for each in stub.requests}
    assert {"s3:PutObject", "s3:ListBucket"} <= asked <= permitted
    permissions = guide("bucket_permissions", home, broker)
    permissions.do("stratalog tier ls")
    permissions.do("stratalog tier audit")
    assert permissions.rest == []


# --- from Kafka and back ----------------------------------------------------------------------------------------------


@pytest.mark.soak
def test_a_topic_moves_with_its_directory_its_offsets_and_its_groups(
    broker: Broker, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker of ours plays Kafka's part; `tests/interop/test_from_kafka_and_back.py` does it with Kafka."""
    with tiering_broker(home / "kafka") as theirs:
        fill(tiered(theirs, "orders", 0), 3)
    places = {
        "/var/lib/kafka": str(home / "kafka"),
        "/var/lib/stratalog": str(home / "new"),
        "127.0.0.1:9092": broker.bootstrap_servers,
    }
    first = Guide("tutorials/from_kafka.md", places)
    for command in ("mkdir", "cp -r", "rm "):
        first.do(command)
    first.do("stratalog fsck")
    first.take("stratalog serve")
    with Broker(home / "new") as new:
        moved = Guide("tutorials/from_kafka.md", places | {"127.0.0.1:19092": new.bootstrap_servers})
        moved.do("stratalog topics create orders")
        capsys.readouterr()
        moved.do("stratalog consume orders")
        assert capsys.readouterr().out.split() == ["0", "1", "2"]
        moved.do("stratalog groups reset-offsets")
        moved.do("stratalog groups reset-offsets")
        assert run(["groups", "describe", "billing", "-b", new.bootstrap_servers]) == 0
        moved.do("stratalog topics create copied")
        moved.do("stratalog consume orders -e --json")
        assert values(partition_of(new, "copied")) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("page", ["README.md", "docs/package.md"])
def test_the_quick_start_serves_produces_and_consumes(
    broker: Broker, page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DOCS.parent / page).read_text().replace("127.0.0.1:9092", broker.bootstrap_servers)
    serve, produce, consume = re.findall(
        r"^    (?:\./)?stratalog (serve .*|produce .*|consume .*)$", text, re.MULTILINE
    )[:3]
    assert serve.split()[0] == "serve"
    topic = Path(page).stem
    assert run(produce.replace("orders", topic).split()) == 0
    capsys.readouterr()
    assert run([*consume.replace("orders", topic).split(), "-e"]) == 0
    assert capsys.readouterr().out == "hello\n"
