"""Make `answers.json`: what Apache Kafka 4.4.0, formatted at level 31, answers to `tests/broker/feature_cases.py`.

python -m tests.golden.features.make
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.broker.feature_cases import run
from tests.support.reference_kafka import ReferenceKafka

#: The longest that a finalized level may take to show.
SETTLE_S = 10.0
GOLDEN = Path(__file__).parent / "answers.json"


def ask_kafka(directory: Path) -> dict[str, Any]:
    """Kafka's answers, as JSON has them."""
    with ReferenceKafka(directory, format_options=["--feature", "metadata.version=31"]) as kafka:
        answers: dict[str, Any] = json.loads(json.dumps(run(kafka.bootstrap_servers, settle_s=SETTLE_S)))
        return answers


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        answers = ask_kafka(Path(directory))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    GOLDEN.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
