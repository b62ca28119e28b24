"""Test suites of clients that others wrote, against our broker and Kafka's: fetched once, run, and held to a list.

    @pytest.fixture(scope="module", params=BROKERS)
    def server(request, tmp_path_factory): yield from served(request.param, tmp_path_factory.mktemp("suite"))

    def test_the_suite(server): outcome(...).holds(explained(server.name, BOTH, OURS))

`$STRATALOG_TESTS` (default `~/.cache/stratalog-tests`) holds what is fetched and built. A missing program, or a
registry that does not answer, skips the test and says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.reference_kafka import ReferenceKafka, free_port, require_reference_kafka

OURS = "stratalog"
KAFKA = "Kafka 4.4.0"

#: The brokers that a suite runs against: a failure at both is the suite's.
BROKERS = (OURS, KAFKA)

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"

#: What the suites expect of a broker, as their own files of settings say it.
SETTINGS: Mapping[str, str] = {
    "node.id": "0",
    "num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}


def suites_home() -> Path:
    return Path(os.environ.get("STRATALOG_TESTS") or Path.home() / ".cache" / "stratalog-tests")


@dataclass(frozen=True)
class Server:
    """A broker that runs: its name among `BROKERS`, and the address of each listener by its protocol."""

    name: str
    address: Mapping[str, str]

    @property
    def plain(self) -> str:
        return self.address["PLAINTEXT"]


@contextlib.contextmanager
def served(
    name: str,
    directory: Path,
    settings: Mapping[str, str] | None = None,
    *,
    address: Mapping[str, str] | None = None,
    advertised: str | None = None,
    users: Sequence[str] = (),
) -> Iterator[Server]:
    """Run the broker `name` on one file of settings. `address`: its listeners by protocol; by default a plain one.

    `advertised` is what clients get instead of the plain address. `users` are SCRAM users as
    `kafka-storage format --add-scram` takes them.
    """
    address = dict(address or {"PLAINTEXT": f"127.0.0.1:{free_port()}"})
    reported = address | ({"PLAINTEXT": advertised} if advertised else {})
    listeners = {
        "listeners": ",".join(f"{protocol}://{where}" for protocol, where in address.items()),
        "advertised.listeners": ",".join(f"{protocol}://{where}" for protocol, where in reported.items()),
    }
    config = {**SETTINGS, **(settings or {}), **listeners}
    with _ours(directory, config, users) if name == OURS else _kafka(directory, config, users):
        yield Server(name, address)
    shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def _ours(directory: Path, config: Mapping[str, str], users: Sequence[str]) -> Iterator[None]:
    properties = directory / "server.properties"
    lines = {"process.roles": "broker,controller", "log.dirs": str(directory / "data"), **config}
    properties.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    program = [sys.executable, "-m", "stratalog"]
    if users:
        added = [part for user in users for part in ("--add-scram", user)]
        made = [*program, "storage", "format", "--cluster-id", CLUSTER_ID, "--config", str(properties), *added]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    with (directory / "stratalog.log").open("wb") as log:
        process = subprocess.Popen(
            [*program, "serve", "--config", str(properties)], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready.startswith("ready "), (directory / "stratalog.log").read_text()[-2000:]
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@contextlib.contextmanager
def _kafka(directory: Path, config: Mapping[str, str], users: Sequence[str]) -> Iterator[None]:
    require_reference_kafka()
    node, controller = config["node.id"], f"127.0.0.1:{free_port()}"
    protocols = [listener.partition(":")[0] for listener in config["listeners"].split(",")]
    own = {
        "controller.quorum.voters": f"{node}@{controller}",
        "listeners": f"{config['listeners']},CONTROLLER://{controller}",
        "listener.security.protocol.map": ",".join([*(f"{name}:{name}" for name in protocols), "CONTROLLER:PLAINTEXT"]),
        "inter.broker.listener.name": protocols[0],
    }
    port = int(config["listeners"].split(",")[0].rpartition(":")[2])
    added = [part for user in users for part in ("--add-scram", user)]
    with ReferenceKafka(directory / "kafka", port, {**config, **own}, format_options=added):
        yield


def need(*programs: str) -> None:
    """Skip the calling test where one of these programs is missing."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no program {program} on the path, so this suite cannot be built")


def built(name: str, make: Callable[[Path], None]) -> Path:
    """The directory `name` of the cache, filled by `make` at the first use. A command that fails there skips the
    test."""
    home = suites_home() / name
    if not (home / "done").is_file():
        suites_home().mkdir(parents=True, exist_ok=True)
        with (suites_home() / f".lock-{name}").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (home / "done").is_file():
                shutil.rmtree(home, ignore_errors=True)
                home.mkdir()
                make(home)
                (home / "done").touch()
    return home


def build(command: Sequence[str], directory: Path, **environment: str) -> str:
    """Run one command of a build, with little of the machine; skip the test, with its last words, when it fails."""
    done = subprocess.run(
        ["nice", *command],
        cwd=directory,
        env=os.environ | {"GOFLAGS": "-p=1", "CARGO_BUILD_JOBS": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = (done.stdout + done.stderr).strip()[-600:]
        pytest.skip(f"{' '.join(command)} failed (exit {done.returncode}): {tail}")
    return done.stdout


@dataclass(frozen=True)
class Outcome:
    """What a run of a suite came to: the names of its tests, and all that it printed."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]
    printed: str = field(repr=False)

    def holds(self, explained: Mapping[str, str], at_least: int) -> None:
        """Assert that the tests that failed are those that are explained, and that `at_least` so many passed.

        An explained one that passes now fails here too: the list only shrinks.
        """
        tail = self.printed[-3000:]
        unexplained = sorted(self.failed - set(explained))
        assert not unexplained, f"{unexplained}\n{tail}"
        healed = sorted(set(explained) & self.passed)
        assert not healed, f"these pass now, their explanation may go: {healed}"
        unknown = sorted(set(explained) - self.failed)
        assert not unknown, f"these are explained, and did not run: {unknown}\n{tail}"
        assert len(self.passed) >= at_least, f"only {len(self.passed)} passed:\n{tail}"


def run(command: Sequence[str], directory: Path, timeout_s: float, **environment: str) -> str:
    """All that a suite prints. One that does not end in time is ended with what it printed till then."""
    process = subprocess.Popen(
        ["nice", *command],
        cwd=directory,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=timeout_s)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0] + f"\nended after {timeout_s:.0f} s\n"


_GO_RESULT = re.compile(r"^( *)--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)
_GO_STARTED = re.compile(r"^=== RUN +(\S+)$", re.MULTILINE)


def go_outcome(printed: str, *, subtests: bool = False) -> Outcome:
    """Of `go test -v`: top-level tests, or with `subtests` their parts. One that was begun and did not end has failed.

    With `subtests` a test that failed only for its parts does not count itself.
    """
    by_word: dict[str, set[str]] = {"PASS": set(), "FAIL": set(), "SKIP": set()}
    for indent, word, name in _GO_RESULT.findall(printed):
        if subtests or not indent:
            by_word[word].add(name)
    begun = {name for name in _GO_STARTED.findall(printed) if subtests or "/" not in name}
    failed = by_word["FAIL"] | (begun - set().union(*by_word.values()))
    whole = {name for name in failed if any(other.startswith(f"{name}/") for other in failed)}
    return Outcome(
        frozenset(by_word["PASS"]),
        frozenset(failed - whole),
        frozenset(by_word["SKIP"]),
        printed,
    )


def go_module(module: str, version: str) -> Path:
    """The directory of a Go module's source, fetched by Go's own client into its cache."""
    need("go")
    where = build(["go", "mod", "download", "-json", f"{module}@{version}"], suites_home())
    found = re.search(r'"Dir": "([^"]+)"', where)
    assert found, where
    return Path(found.group(1))
