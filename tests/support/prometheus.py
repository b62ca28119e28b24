"""A real Prometheus, built from its Go module and kept in `~/.cache/stratalog-tests`; a test is skipped without it."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.client_suites import build, built, need

PROMETHEUS = "v0.316.0"
_PACKAGE = "github.com/prometheus/prometheus"
#: Discovery of targets in clouds is left out: it is most of the build.
_TAGS = "remove_all_sd,netgo"


def program(name: str) -> str:
    """Return the path of `prometheus` or `promtool`; building both takes minutes the first time."""
    need("go")
    return str(built(f"prometheus-{PROMETHEUS}", _build) / name)


def _build(home: Path) -> None:
    (home / "go.mod").write_text("module tests\n")
    flags = f"-p=1 -buildvcs=false -tags={_TAGS}"
    programs = ("prometheus", "promtool")
    # Both are asked for: each needs sums of modules that the other does without.
    build(["go", "get", "-tool", *(f"{_PACKAGE}/cmd/{name}@{PROMETHEUS}" for name in programs)], home, GOFLAGS=flags)
    for name in programs:
        build(["go", "build", "-o", name, f"{_PACKAGE}/cmd/{name}"], home, GOFLAGS=flags)


class Prometheus:
    """What a running Prometheus answers."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API; ValueError with its words for an error."""
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters}: {error.read().decode()}") from error

    def values(self, expr: str) -> list[float]:
        """Return the values of an expression now."""
        return [float(each["value"][1]) for each in self.ask("query", query=expr)["result"]]

    def scraped(self) -> int:
        """Return how often the broker has been scraped well, as far as the last minutes tell."""
        return int(sum(self.values("sum_over_time(up[5m])")))


@contextmanager
def prometheus(directory: Path, configuration: str, port: int) -> Iterator[Prometheus]:
    """Run Prometheus with a configuration, until it is ready and then until the end of the block."""
    (directory / "prometheus.yml").write_text(configuration)
    command = [program("prometheus"), f"--config.file={directory / 'prometheus.yml'}",
               f"--storage.tsdb.path={directory / 'tsdb'}", f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with (directory / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5):
                    break
            except OSError:
                assert process.poll() is None, (directory / "prometheus.log").read_text()[-2000:]
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(30)
