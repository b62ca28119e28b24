"""Write `answers.json`: what Kafka 4.4.0 answers to requests for quotas.

python -m tests.golden.quotas.make
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support.quota_cases import answers
from tests.support.reference_kafka import ReferenceKafka

GOLDEN = Path(__file__).with_name("answers.json")


def ask_kafka(directory: Path) -> dict[str, Any]:
    with ReferenceKafka(directory) as kafka:
        return answers(kafka.bootstrap_servers, lambda: time.sleep(1))  # brokers learn of changes later


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(json.dumps(ask_kafka(Path(made) / "kafka"), indent=1, ensure_ascii=False) + "\n")
