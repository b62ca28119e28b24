"""Make `answers.json`: what Apache Kafka 4.4.0 answers to the requests of `tests/broker/cluster_cases.py`.

python -m tests.golden.cluster.make
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.broker.cluster_cases import LOGGER, run
from tests.support.reference_jars import SHORT_LIVED
from tests.support.reference_kafka import ReferenceKafka

GOLDEN = Path(__file__).parent / "answers.json"
#: The loggers that Kafka's own log4j2.yaml configures, as far as the cases ask for them.
_LOGGERS = f"""
rootLogger.level = INFO
logger.authorizer.name = {LOGGER}
logger.authorizer.level = INFO
"""


def ask_kafka(directory: Path) -> dict[str, Any]:
    """Kafka's answers, as JSON has them."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    loggers = directory.with_suffix(".log4j2.properties")
    loggers.write_text(_LOGGERS)
    options = ("-Xms128m", "-Xmx512m", *SHORT_LIVED, f"-Dlog4j2.configurationFile={loggers}")
    with ReferenceKafka(directory, jvm_options=options) as kafka:
        answers: dict[str, Any] = json.loads(json.dumps(run(kafka.bootstrap_servers)))
        return answers


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        answers = ask_kafka(Path(directory) / "kafka")
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    GOLDEN.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
