"""Make `answers.json`: what Apache Kafka 4.4.0 answers to the requests of `tests/broker/cluster_cases.py`.

python -m tests.golden.cluster.make
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.broker.cluster_cases import run
from tests.support.reference_kafka import ReferenceKafka

GOLDEN = Path(__file__).parent / "answers.json"


def ask_kafka(directory: Path) -> dict[str, Any]:
    """Kafka's answers, as JSON has them."""
    with ReferenceKafka(directory) as kafka:
        answers: dict[str, Any] = json.loads(json.dumps(run(kafka.bootstrap_servers)))
        return answers


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        answers = ask_kafka(Path(directory))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    GOLDEN.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
