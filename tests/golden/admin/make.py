"""Make `answers.json`: what Apache Kafka 4.4.0 answers to the requests of `tests/broker/admin_cases.py`.

python -m tests.golden.admin.make
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.broker.admin_cases import run
from tests.support.goldens import as_json, write_answers
from tests.support.reference_kafka import ReferenceKafka

GOLDEN = Path(__file__).parent / "answers.json"
#: A change of broker configs shows a moment after it was answered.
SETTLE_S = 0.5


def ask_kafka(directory: Path) -> dict[str, Any]:
    """Kafka's answers, as JSON has them."""
    with ReferenceKafka(directory) as kafka:
        return as_json(run(kafka.bootstrap_servers, settle_s=SETTLE_S))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        answers = ask_kafka(Path(directory))
    write_answers(GOLDEN, answers)


if __name__ == "__main__":
    main()
