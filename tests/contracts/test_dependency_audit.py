"""The audit of dependencies: what it finds, and what it says where nothing answers.

The database holds one advisory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.reference_kafka import free_port

ROOT = Path(__file__).parents[2]
ADVISORY = {
    "id": "PYSEC-2023-48",
    "modified": "2023-06-05T01:13:00Z",
    "summary": "form fields without a bound",
    "affected": [
        {
            "package": {"name": "starlette", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "0.25.0"}]}],
        }
    ],
}
LOCK = """\
version = 1
revision = 5
requires-python = ">=3.11"

[[package]]
name = "project"
version = "1"
source = {{ virtual = "." }}
dependencies = [{{ name = "starlette" }}]

[[package]]
name = "starlette"
version = "{version}"
source = {{ registry = "{registry}" }}
wheels = [{{ url = "{registry}/starlette-{version}-py3-none-any.whl", hash = "sha256:{hash}" }}]
"""


class Database(BaseHTTPRequestHandler):
    """OSV's two requests, and an index that has nothing to say."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path.startswith("/refused"):
            self.send_error(403)
            return
        asked = json.loads(body)["queries"]
        vulnerable = {"vulns": [{"id": ADVISORY["id"], "modified": ADVISORY["modified"]}]}
        self._answer({"results": [vulnerable if query["version"] < "0.25.0" else {} for query in asked]})

    def do_GET(self) -> None:
        if self.path.endswith(f"/v1/vulns/{ADVISORY['id']}"):
            self._answer(ADVISORY)
        else:
            self.send_error(404)

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def database() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Database) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def audited(project: Path, version: str, address: str, *options: str) -> subprocess.CompletedProcess[str]:
    (project / "pyproject.toml").write_text(
        '[project]\nname = "project"\nversion = "1"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["starlette=={version}"]\n'
    )
    registry = f"{address}/simple"
    (project / "uv.lock").write_text(LOCK.format(version=version, registry=registry, hash="0" * 64))
    command = [sys.executable, "-m", "tools.audit_dependencies", "--project", str(project), "--service-url", address]
    quick = {"UV_HTTP_RETRIES": "0", "UV_DEFAULT_INDEX": registry, "UV_CACHE_DIR": str(project / "cache")}
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=os.environ | quick, capture_output=True, text=True, check=False
    )
    if "there is no uv" in done.stderr:
        pytest.skip(done.stderr.strip())
    return done


def test_a_known_vulnerability_fails_it(database: str, tmp_path: Path) -> None:
    done = audited(tmp_path, "0.24.0", database)
    assert done.returncode == 1, done.stderr
    assert "PYSEC-2023-48: form fields without a bound" in done.stdout
    assert audited(tmp_path, "0.24.0", database, "--ignore", "PYSEC-2023-48").returncode == 0


def test_none_known_passes_and_nothing_is_skipped(database: str, tmp_path: Path) -> None:
    done = audited(tmp_path, "0.25.0", database)
    assert done.returncode == 0, done.stderr
    assert "SKIPPED" not in done.stderr


def test_a_database_that_does_not_answer_is_a_loud_skip_or_a_failure(tmp_path: Path) -> None:
    nowhere = f"http://127.0.0.1:{free_port()}"
    done = audited(tmp_path, "0.24.0", nowhere)
    assert done.returncode == 0, done.stderr
    assert "*** SKIPPED: known vulnerabilities were NOT looked up" in done.stderr
    assert "Connection refused" in done.stderr
    assert audited(tmp_path, "0.24.0", nowhere, "--required").returncode == 2


@pytest.mark.parametrize("columns", ["40", "200"])
def test_a_refusal_on_the_way_to_the_database_is_one_too(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = audited(tmp_path, "0.24.0", f"{database}/refused/")
    assert done.returncode == 0, done.stderr
    assert "403" in done.stderr.rpartition("NOT looked up")[2]


def test_what_is_no_matter_of_the_network_is_never_a_skip(database: str, tmp_path: Path) -> None:
    assert audited(tmp_path, "0.24.0", database, "--no-such-option").returncode == 2
    (tmp_path / "uv.lock").unlink()
    command = [sys.executable, "-m", "tools.audit_dependencies", "--project", str(tmp_path)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode != 0
