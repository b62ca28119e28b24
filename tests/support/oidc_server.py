"""An OpenID provider on a free port of 127.0.0.1, over https: discovery, keys, and tokens for client credentials.

    require_oidc_server()                     # in a test or fixture: skips, saying why, where it cannot be had
    with OidcServer(tmp_path, authority) as server:
        print(server.discovered["jwks_uri"])

It is `oauth2-mock-server` from npm, kept in `~/.cache/stratalog-tests`; fetching it takes some seconds. With
`STRATALOG_REQUIRE_OIDC=1` a machine that cannot have it fails those tests.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.authority import Authority
from tests.support.reference_kafka import free_port

VERSION = "8.2.3"
HOME = Path.home() / ".cache" / "stratalog-tests" / f"oauth2-mock-server-{VERSION}"
SECRET = "hush-hush"


class OidcServer:
    """Gives each client that shows SECRET a token in its own name, for the audience kafka, for `lifetime_s`."""

    discovered: dict[str, Any]

    def __init__(self, directory: Path, authority: Authority, lifetime_s: int = 600) -> None:
        self._lifetime_s = lifetime_s
        self._authority = authority
        self._identity = authority.issue().write_pem(directory / "oidc.pem")
        self._log = directory / "oidc.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> OidcServer:
        script = Path(__file__).with_name("oidc_server.mjs")
        port = free_port()
        command = ["node", str(script), str(HOME / "node_modules"), str(port), SECRET, str(self._lifetime_s)]
        command += [str(self._identity)] * 2
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
        try:
            assert self._process.stdout is not None
            url = self._process.stdout.readline().decode().strip()  # comes once it serves
            assert url, self._log.read_text()
            trusted = ssl.create_default_context(cadata=self._authority.pem)
            with urllib.request.urlopen(f"{url}/.well-known/openid-configuration", context=trusted) as answer:
                self.discovered = json.load(answer)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def require_oidc_server() -> None:
    """Skip the calling test where the server cannot be had; fail it there under `STRATALOG_REQUIRE_OIDC=1`."""
    import pytest

    reason = _fetch()
    if reason is None:
        return
    if os.environ.get("STRATALOG_REQUIRE_OIDC") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def _fetch() -> str | None:
    """Put it in its place, all of it or nothing; None, or why it cannot be had."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "the OpenID provider is fetched by npm and runs on node, which are not on the path"
    if HOME.is_dir():
        return None
    making = HOME.with_name(f"{HOME.name}.{os.getpid()}")
    making.mkdir(parents=True)
    try:
        command = [npm, "install", "--no-audit", "--no-fund", "--prefix", str(making), f"oauth2-mock-server@{VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"npm could not fetch oauth2-mock-server: {done.stderr.strip()[-300:]}"
        with contextlib.suppress(OSError):  # somebody else was faster
            making.rename(HOME)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return None
