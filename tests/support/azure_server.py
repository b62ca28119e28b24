"""A server that speaks Azure's blob protocol, on a free port of 127.0.0.1: Azurite.

    require_azure_server()                    # in a test or fixture: skips, saying why, where it cannot be had
    with AzureServer(tmp_path) as azure:
        store = ObjectStore.from_url(azure.url("prefix"), azure.options)

It comes from npm and is kept in `~/.cache/stratalog-tests`; fetching it the first time takes half a minute. With
`STRATALOG_REQUIRE_AZURE=1` a machine that cannot have it fails those tests.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from email.utils import formatdate
from pathlib import Path
from types import TracebackType

from tests.support.reference_kafka import free_port

AZURITE = "3.35.0"
HOME = Path.home() / ".cache" / "stratalog-tests" / f"azurite-{AZURITE}"
START_TIMEOUT_S = 60.0
CONTAINER = "container"

#: Its one account; name and key are public.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class AzureServer:
    """A server with one container, which is empty at first. Its data lies under `directory`."""

    def __init__(self, directory: Path) -> None:
        self._port = free_port()
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}/{ACCOUNT}"

    @property
    def options(self) -> dict[str, str]:
        """Options of an object store that speaks to this server."""
        return {"account_name": ACCOUNT, "account_key": KEY, "endpoint": self.endpoint}

    def url(self, prefix: str, container: str = CONTAINER) -> str:
        return f"az://{container}/{prefix}"

    def __enter__(self) -> AzureServer:
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(self._command(), stdout=log, stderr=log, start_new_session=True)
        try:
            self._create_container()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _command(self) -> list[str]:
        program = HOME / "node_modules" / ".bin" / "azurite-blob"
        address = ["--blobHost", "127.0.0.1", "--blobPort", str(self._port)]
        quiet = ["--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        return [str(program), *address, *quiet, "--location", str(self._directory / "data")]

    def _create_container(self) -> None:
        """With a signed request, as soon as the server listens.

        See https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
        """
        kind = "application/octet-stream"
        signed = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
        resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        text = "PUT" + "\n" * 5 + kind + "\n" * 7 + lines + resource
        digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
        authorization = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
        headers = {**signed, "Authorization": authorization, "Content-Length": "0", "Content-Type": kind}
        url = f"{self.endpoint}/{CONTAINER}?restype=container"
        request = urllib.request.Request(url, b"", headers, method="PUT")
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                urllib.request.urlopen(request, timeout=10).close()
            except urllib.error.HTTPError:
                raise
            except (ConnectionError, urllib.error.URLError):
                if time.monotonic() > deadline:
                    log = (self._directory / "server.log").read_text(errors="replace")
                    raise RuntimeError(f"Azurite does not serve:\n{log}") from None
                time.sleep(0.05)
            else:
                return


def require_azure_server() -> None:
    """Skip the calling test where Azurite cannot be had; fail it there under `STRATALOG_REQUIRE_AZURE=1`."""
    import pytest

    reason = _fetch()
    if reason is None:
        return
    if os.environ.get("STRATALOG_REQUIRE_AZURE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _fetch() -> str | None:
    """Put it in its place, all of it or nothing; None, or why it cannot be had."""
    if HOME.is_dir():
        return None
    npm = shutil.which("npm")
    if npm is None:
        return "Azurite is fetched by npm, which is not on the path"
    making = HOME.with_name(f"{HOME.name}.{os.getpid()}")
    making.mkdir(parents=True)
    try:
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(making), f"azurite@{AZURITE}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"npm could not fetch Azurite: {done.stderr.strip()[-300:]}"
        with contextlib.suppress(OSError):  # somebody else was faster
            making.rename(HOME)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return None
