"""The class for Testcontainers: it compiles without a warning, and the script that it gives the container serves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = Path(__file__).parents[2] / "testing" / "java"
PRINT = """
package org.stratalog.testing;
public class Print {
    public static void main(String[] words) {
        var settings = java.util.Map.of("stratalog.web.login", "off", "log.dir", "it's");
        System.out.print(StratalogContainer.startScript(words[0], settings));
    }
}
"""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


@pytest.fixture
def classpath(tmp_path: Path) -> str:
    if shutil.which("mvn") is None or shutil.which("javac") is None:
        pytest.skip("no Maven or no JDK on this machine: the class for Testcontainers is not compiled")
    module = tmp_path / "java"
    shutil.copytree(MODULE, module, ignore=shutil.ignore_patterns("target"))
    listing = tmp_path / "classpath"
    command = ["mvn", "-q", "-B", "-f", str(module / "pom.xml"), "compile", "dependency:build-classpath"]
    built = subprocess.run([*command, f"-Dmdep.outputFile={listing}"], capture_output=True, text=True, check=False)
    if "Could not transfer artifact" in built.stdout:
        pytest.skip("Maven reaches no repository: the class for Testcontainers is not compiled")
    assert built.returncode == 0, built.stdout[-3000:]
    return f"{module / 'target' / 'classes'}:{listing.read_text()}"


def test_the_class_compiles_and_its_script_starts_a_broker(classpath: str, tmp_path: Path) -> None:
    source = tmp_path / "org" / "stratalog" / "testing" / "Print.java"
    source.parent.mkdir(parents=True)
    source.write_text(PRINT)
    subprocess.run(["javac", "-cp", classpath, "-d", str(tmp_path), str(source)], check=True)
    command = ["java", "-cp", f"{tmp_path}:{classpath}", "org.stratalog.testing.Print", "localhost:1234"]
    script = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for there, here in {
        "/var/lib/stratalog": str(tmp_path / "data"),
        "0.0.0.0:9092": "127.0.0.1:0",
        "0.0.0.0:8080": "127.0.0.1:0",
        " --set 'log.dir=it'\\''s'": "",
    }.items():
        assert there in script
        script = script.replace(there, here)
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with subprocess.Popen(["sh", "-c", script], env=environment, stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        ready = re.match(r"ready broker=(\S+)", broker.stdout.readline())
        broker.terminate()
    assert ready is not None
    assert broker.returncode == 0
