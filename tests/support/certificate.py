"""A certificate of 127.0.0.1 that signs itself, made by the program `openssl`."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM; any client that trusts `certificate` trusts the server."""

    certificate: Path
    key: Path


def make_certificate(directory: Path) -> Certificate:
    """Skips the test where there is no `openssl`."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("no program openssl to make a certificate with")
    made = Certificate(directory / "server.pem", directory / "server.key")
    subprocess.run(
        [
            program,
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            str(made.key),
            "-out",
            str(made.certificate),
            "-days",
            "2",
            "-subj",
            "/CN=127.0.0.1",
            "-addext",
            "subjectAltName=IP:127.0.0.1,DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ],
        check=True,
        capture_output=True,
    )
    return made
