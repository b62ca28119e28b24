"""Make `goldens.json`: what the classes of Apache Kafka 4.4.0 answer about remote segments.

    python -m tests.golden.remote.make

Bytes of metadata events, what Kafka reads in events that we wrote of segments beyond 2^31-1 bytes, metadata partitions of
user partitions, transitions of segment states, and whether segments lie within a lineage of leader epochs (random cases of
a fixed seed). `RemoteGoldens.java` asks; it needs a JDK.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from stratalog.remote.metadata.serde import encode
from tests.remote.values import LARGE_SEGMENTS
from tests.support.reference_jars import BROKER_JARS, classpath, java

HERE = Path(__file__).parent


def main() -> None:
    jars = classpath(BROKER_JARS)
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(["javac", "-cp", jars, "-d", out, str(HERE / "RemoteGoldens.java")], check=True)
        ours = [f"{name}={encode(event).hex()}" for name, event in LARGE_SEGMENTS.items()]
        main_class = "org.apache.kafka.server.log.remote.storage.RemoteGoldens"
        command = [java(), "-cp", f"{out}:{jars}", main_class, *ours]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    document = json.loads(done.stdout)
    (HERE / "goldens.json").write_text(_compact(document), encoding="utf-8")


def _compact(document: dict[str, object]) -> str:
    """One line for each entry."""
    parts = []
    for name, value in document.items():
        if isinstance(value, dict):
            lines = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in value.items()]
            parts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
        else:
            assert isinstance(value, list)
            parts.append(
                f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(entry) for entry in value) + "\n]"
            )
    return "{" + ",\n".join(parts) + "}\n"


if __name__ == "__main__":
    main()
