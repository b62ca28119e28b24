"""Credentials of a store: from the environment alone, and, given as options, in nothing that Spark shows or keeps.

./run-tests -m soak tests/spark/test_secrets.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stratalog.remote.storage.object_store import ObjectStore
from tests.spark.partitions import Partition, steady
from tests.support.s3_server import ACCESS_KEY, SECRET_KEY, S3Server

ROOT = Path(__file__).parents[2]
WRONG_SECRET = "a-secret-that-is-wrong"


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_credentials_of_the_environment_are_enough_and_nothing_shows_those_of_options(
    s3: S3Server, tmp_path: Path
) -> None:
    """Batch source, stream source, bulk sink and a pipeline, on driver and workers."""
    partition = Partition(tmp_path / "data")
    source = s3.url("secrets/source")
    partition.upload_to(ObjectStore.from_url(source, s3.options), partition.segment(steady(4)))
    settings = {
        "source": source,
        "target": s3.url("secrets/target"),
        "options": s3.options,
        "wrong": s3.options | {"secret_access_key": WRONG_SECRET},
        "directory": str(tmp_path / "spark"),
    }
    credentials = {
        "AWS_ENDPOINT_URL": s3.endpoint,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.secrets_child", json.dumps(settings)],
        env=os.environ | credentials,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for way in ("environment", "options"):
        shown = found[way].pop("shown")
        assert found[way] == {"batch": 17, "stream": 20, "export": 20, "table": 20}
        assert any("StreamingRelationV2" in text for text in shown)
    assert len(found["errors"]) == 4
    for text in found["errors"]:
        assert "the secret key is wrong; check the credentials" in text
    assert "INFO" in done.stderr
    kept = [path for path in (tmp_path / "spark").rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in kept)
    for text in (done.stdout, done.stderr, *(path.read_bytes().decode("latin-1") for path in kept)):
        assert SECRET_KEY not in text
        assert WRONG_SECRET not in text
