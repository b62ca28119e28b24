"""What `deploy/` holds: the commands in it run as they are written, with paths and ports of the test put in."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from confluent_kafka.admin import AdminClient

from stratalog.config import parse_properties, refuse_unkept

DEPLOY = Path(__file__).parents[2] / "deploy"
PROGRAMS = Path(sys.executable).parent
_READY = re.compile(r"ready broker=(127\.0\.0\.1:\d+) web=(http://127\.0\.0\.1:\d+/)\n")
_FREE_PORTS = {"0.0.0.0:9092": "127.0.0.1:0", "0.0.0.0:8080": "127.0.0.1:0", "127.0.0.1:8080": "127.0.0.1:0"}


def instructions(name: str) -> dict[str, list[str]]:
    """Return what the last stage of the container file says, by instruction; continued lines are joined."""
    text = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
    stage = text[text.rindex("\nFROM ") :]
    return {name: re.findall(rf"^{name} (.*)$", stage, re.MULTILINE)}


def run_as(command: list[str], tmp_path: Path) -> list[str]:
    """Return a command of a server as it runs here."""
    here = {"/var/lib/stratalog": str(tmp_path / "data"), "/etc/stratalog": str(tmp_path), **_FREE_PORTS}
    command = [str(PROGRAMS / Path(command[0]).name), *command[1:]]
    for there, ours in here.items():
        command = [word.replace(there, ours) for word in command]
    return command


@contextmanager
def serving(command: list[str]) -> Iterator[tuple[str, str]]:
    """Run a broker; give its address and that of its pages. It must end cleanly."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        ready = _READY.fullmatch(process.stdout.readline())
        assert ready is not None
        try:
            yield ready[1], ready[2]
        finally:
            process.terminate()
    assert process.returncode == 0


def documents(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((DEPLOY / name).read_text()) if document]


# --- the container ----------------------------------------------------------------------------------------------------


def test_the_container_starts_a_broker_that_its_health_check_finds_well(tmp_path: Path) -> None:
    said = instructions("ENTRYPOINT") | instructions("CMD") | instructions("HEALTHCHECK")
    entry = [json.loads(said[name][0]) for name in ("ENTRYPOINT", "CMD")]
    check = json.loads(said["HEALTHCHECK"][0].partition(" CMD ")[2])
    with serving(run_as(entry[0] + entry[1], tmp_path)) as (address, pages):
        assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=30).brokers
        command = [sys.executable, *check[1:-1], check[-1].replace("http://127.0.0.1:8080/", pages)]
        assert subprocess.run(command, check=False).returncode == 0
    assert subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode != 0


def test_the_container_does_not_run_as_root_and_takes_nothing_from_apt() -> None:
    assert instructions("USER")["USER"] == ["10001:10001"]
    assert "apt" not in (DEPLOY / "Containerfile").read_text()


def test_what_the_container_copies_is_in_the_repository() -> None:
    for line in re.findall(r"^COPY (?!--from)(.*)$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (DEPLOY.parent / source).exists(), source


# --- systemd ----------------------------------------------------------------------------------------------------------


def unit_settings(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", (DEPLOY / "stratalog.service").read_text(), re.MULTILINE)


def test_the_unit_starts_a_broker_that_says_when_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:0\n")
    (start,) = unit_settings("ExecStart")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with serving(run_as(shlex.split(start), tmp_path)):
            assert manager.recv(100) == b"READY=1"
    assert unit_settings("Type") == ["notify"]


def test_systemd_finds_the_unit_sound_and_well_confined(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on this machine")
    unit = tmp_path / "stratalog.service"
    text = (DEPLOY / "stratalog.service").read_text().replace("/opt/stratalog/bin", str(PROGRAMS))
    unit.write_text(text)
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=20", "--no-pager", str(unit)]
    confined = subprocess.run(command, capture_output=True, text=True, check=False)
    assert confined.returncode == 0, confined.stdout[-2000:]


# --- compose and Kubernetes -------------------------------------------------------------------------------------------


def test_the_composition_sets_what_the_broker_knows_and_mounts_what_is_there() -> None:
    (composition,) = documents("compose.yaml")
    services = composition["services"]
    assigned = dict(word.removeprefix("--set=").split("=", 1) for word in services["stratalog"]["command"])
    refuse_unkept(assigned)
    assert assigned["stratalog.web.hosts"] in services
    assert (DEPLOY / services["stratalog"]["build"]["context"] / "deploy" / "Containerfile").exists()
    for service in services.values():
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            assert source in composition["volumes"] or (DEPLOY / source).exists(), source
    (scraped,) = documents("prometheus.yaml")
    (target,) = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target.partition(":")[0] in services


def test_the_stateful_set_starts_a_broker_whose_probes_are_answered(tmp_path: Path) -> None:
    found = {document["kind"]: document for document in documents("kubernetes.yaml")}
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    properties = found["ConfigMap"]["data"]["server.properties"]
    refuse_unkept(parse_properties(properties, "server.properties"))
    (tmp_path / "server.properties").write_text(
        properties.replace("0.0.0.0:9092", "127.0.0.1:0").replace("/var/lib/stratalog", str(tmp_path / "data"))
    )
    volumes = {volume["name"] for volume in [*pod["volumes"], *map(_metadata, _claims(found))]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    with serving(run_as([*container["command"], *container["args"]], tmp_path)) as (_, pages):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container[probe]["httpGet"]["path"]
            answer = subprocess.run(
                [sys.executable, "-c", f"import urllib.request; urllib.request.urlopen('{pages.rstrip('/')}{path}')"],
                check=False,
            )
            assert answer.returncode == 0, probe


def _claims(found: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    claims: list[dict[str, Any]] = found["StatefulSet"]["spec"]["volumeClaimTemplates"]
    return claims


def _metadata(claim: dict[str, Any]) -> dict[str, Any]:
    metadata: dict[str, Any] = claim["metadata"]
    return metadata
