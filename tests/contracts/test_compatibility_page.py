"""The tables of docs/COMPATIBILITY.md are those of the code and of what Kafka 4.4.0 says that it has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from stratalog.broker.apis import load_apis

ROOT = Path(__file__).resolve().parents[2]
KAFKA: dict[str, list[int]] = json.loads((ROOT / "tests/golden/comparison/kafka_apis.json").read_text())


def test_the_page_is_what_the_tool_writes() -> None:
    command = [sys.executable, "-m", "tools.compatibility_page", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_api_begins_later_than_kafkas_or_goes_further() -> None:
    apis = {str(int(key)): api for key, api in load_apis().items()}
    assert {key for key, api in apis.items() if key in KAFKA and api.advertised_min > KAFKA[key][0]} == set()
    assert {key for key, api in apis.items() if key in KAFKA and api.max_version > KAFKA[key][1]} == set()
