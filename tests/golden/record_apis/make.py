"""Make `answers.json`: what Apache Kafka 4.4.0 answers to the requests of `tests/broker/record_cases.py`.

python -m tests.golden.record_apis.make
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from stratalog.wire.api_keys import ApiKey
from tests.broker.record_cases import run
from tests.support.goldens import as_json, write_answers
from tests.support.reference_kafka import ReferenceKafka
from tests.support.wire import Wire

GOLDEN = Path(__file__).parent / "answers.json"
#: Under this name: the versions of all its APIs, [min, max] by key.
VERSIONS = "versions"


def ask_kafka(directory: Path) -> dict[str, Any]:
    """Kafka's answers, as JSON has them."""
    with ReferenceKafka(directory) as kafka:
        with Wire(kafka.bootstrap_servers) as wire:
            told = wire.call(ApiKey.API_VERSIONS, 4, client_software_name="a", client_software_version="1")
            versions = {
                str(int(entry.api_key)): [entry.min_version, entry.max_version] for entry in told.api_keys
            }
        return as_json({VERSIONS: versions, **run(kafka.bootstrap_servers)})


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        answers = ask_kafka(Path(directory))
    write_answers(GOLDEN, answers)


if __name__ == "__main__":
    main()
