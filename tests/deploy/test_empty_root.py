"""The container file, carried out command by command in roots of their own, and its broker in a read-only one."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.container_root import Stage, carry_out, script, why_not
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
NAMESPACES = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child")

pytestmark = [pytest.mark.soak, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"the container file is not carried out: {reason}")
    return carry_out(ROOT / "deploy" / "Containerfile", ROOT, tmp_path_factory.mktemp("container"))


def test_what_the_file_builds_serves_as_its_user_from_a_read_only_root(stage: Stage) -> None:
    """Entry point, health check and volumes as they are written; nothing else may be written, and a stop is clean."""
    volumes = (stage.said["VOLUME"],)
    entry = script(stage, stage.command("ENTRYPOINT", "CMD"), is_read_only=True, volumes=volumes)
    check = stage.said["HEALTHCHECK"].partition(" CMD ")[2]
    stage.said["CHECK"] = check
    process = subprocess.Popen(
        [*NAMESPACES, "sh", "-ec", entry], env=stage.environment, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert re.fullmatch(r"ready broker=\S+:9092 web=http://127\.0\.0\.1:8080/\n", ready), ready
        (broker,) = children(process.pid)

        def inside(*command: str, text: str = "") -> subprocess.CompletedProcess[str]:
            enter = ["nsenter", "--target", str(broker), "--mount", "--net", "--pid", "--root", "--wd=/"]
            return subprocess.run(
                [*enter, *command], input=text, env=stage.environment, capture_output=True, text=True, check=False
            )

        try:
            status = Path("/proc", str(broker), "status").read_text()
            assert re.search(r"^Uid:\s+10001\s+10001\s+10001\s+10001$", status, re.MULTILINE)
            assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
            wait_until(lambda: inside(*stage.command("CHECK")).returncode == 0, "the health check finds it well")
            assert inside("touch", "/opt/stratalog/x").returncode != 0
            made = inside("stratalog", "produce", "greetings", "--create", "-b", "localhost:9092", text="hello\n")
            assert made.returncode == 0, made.stderr
            read = inside("stratalog", "consume", "greetings", "-b", "localhost:9092", "-e", "--format", "%s")
            assert (read.returncode, read.stdout) == (0, "hello"), read.stderr
        finally:
            os.kill(broker, signal.SIGTERM)
        assert process.wait(60) == 0
    assert list((stage.root / "var/lib/stratalog").glob("greetings-*/*.log"))


def children(pid: int) -> list[int]:
    return [int(each) for each in Path("/proc", str(pid), "task", str(pid), "children").read_text().split()]
