"""What `deploy/` and CI hold is sound to the linters and schemas of those who read it, and these find what is not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
#: From what the page says to what the schemas know.
KUBERNETES = ("1.31", "1.34", "1.37")


def run(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = Path(sys.executable).parent / program
    if not path.exists():
        pytest.skip(f"{program} is not installed; ./stratalog installs it")
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=False)


def test_hadolint_has_nothing_to_say_of_the_container_file() -> None:
    said = run("hadolint", "--no-color", DEPLOY / "Containerfile")
    assert (said.returncode, said.stdout) == (0, "")


def test_hadolint_finds_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "Containerfile").write_text("FROM docker.io/library/debian\nRUN apt-get install curl\n")
    said = run("hadolint", "--no-color", tmp_path / "Containerfile")
    assert said.returncode == 1
    assert "DL3006" in said.stdout


@pytest.mark.parametrize("version", KUBERNETES)
def test_kubernetes_takes_every_resource(version: str) -> None:
    said = run("kubernetes-validate", "--strict", "-k", version, DEPLOY / "kubernetes.yaml")
    assert said.returncode == 0, said.stdout + said.stderr


def test_kubernetes_refuses_a_field_that_is_none(tmp_path: Path) -> None:
    documents = [each for each in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()) if each]
    (stateful,) = [each for each in documents if each["kind"] == "StatefulSet"]
    stateful["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    (tmp_path / "kubernetes.yaml").write_text(json.dumps(stateful))
    said = run("kubernetes-validate", "--strict", "-k", KUBERNETES[0], tmp_path / "kubernetes.yaml")
    assert said.returncode != 0
    assert "readynessProbe" in said.stdout + said.stderr


@pytest.mark.parametrize(
    ("schema", "file"),
    [("vendor.compose-spec", "deploy/compose.yaml"), ("vendor.github-workflows", ".github/workflows/ci.yml")],
)
def test_the_schema_takes_the_file(schema: str, file: str) -> None:
    said = run("check-jsonschema", "--builtin-schema", schema, ROOT / file)
    assert said.returncode == 0, said.stdout


def test_the_schema_of_compositions_refuses_a_key_that_is_none(tmp_path: Path) -> None:
    document = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    document["services"]["stratalog"]["readonly"] = True
    (tmp_path / "compose.yaml").write_text(json.dumps(document))
    said = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", tmp_path / "compose.yaml")
    assert said.returncode == 1
    assert "readonly" in said.stdout
