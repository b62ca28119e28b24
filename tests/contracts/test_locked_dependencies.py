"""What is installed is what was looked at: every dependency has one version, from the registry, with hashes.

Known vulnerabilities are looked up by `tools/audit_dependencies.py`, which CI runs.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
REGISTRY = "https://pypi.org/simple"
LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCKED = {package["name"]: package for package in LOCK["package"] if package["name"] != PROJECT["name"]}


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_every_dependency_is_of_the_registry() -> None:
    assert {name for name, package in LOCKED.items() if package["source"] != {"registry": REGISTRY}} == set()


def test_every_file_that_may_be_installed_has_a_hash() -> None:
    without = []
    for name, package in LOCKED.items():
        files = [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
        assert files, name
        without += [each["url"] for each in files if not re.fullmatch(r"sha256:[0-9a-f]{64}", each.get("hash", ""))]
    assert without == []


def test_every_declared_dependency_is_locked() -> None:
    declared = [
        *PROJECT["dependencies"],
        *(each for extra in PROJECT["optional-dependencies"].values() for each in extra),
    ]
    assert {name_of(each) for each in declared} - LOCKED.keys() - {PROJECT["name"]} == set()


def test_ci_looks_for_known_vulnerabilities_of_what_is_locked() -> None:
    assert "python -m tools.audit_dependencies" in (ROOT / ".ci" / "run").read_text()
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    assert "python -m tools.audit_dependencies --required" in workflow
