"""Make `answers.json`: what Apache Kafka 4.4.0, formatted at level 31, answers to `tests/broker/feature_cases.py`.

python -m tests.golden.features.make
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from tests.broker.feature_cases import run
from tests.support.goldens import as_json, write_answers
from tests.support.reference_kafka import ReferenceKafka

#: The longest that a finalized level may take to show.
SETTLE_S = 10.0
GOLDEN = Path(__file__).parent / "answers.json"


def ask_kafka(directory: Path) -> dict[str, Any]:
    """Kafka's answers, as JSON has them."""
    with ReferenceKafka(directory, format_options=["--feature", "metadata.version=31"]) as kafka:
        return as_json(run(kafka.bootstrap_servers, settle_s=SETTLE_S))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        answers = ask_kafka(Path(directory))
    write_answers(GOLDEN, answers)


if __name__ == "__main__":
    main()
