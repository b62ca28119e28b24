"""Make `answers.json`, what Apache Kafka 4.4.0 answers to the requests that a seed makes, and `kafka_apis.json`.

python -m tests.golden.comparison.make
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.comparison.brokers import two_brokers
from tests.comparison.comparison import ask_alone, common_versions

GOLDEN = Path(__file__).parent / "answers.json"
APIS = GOLDEN.with_name("kafka_apis.json")
SEED = 1333
COUNT = 600


def as_json(answers: Any) -> Any:
    """Answers as JSON has them; bytes in hex."""
    return json.loads(json.dumps(answers, default=bytes.hex))


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, two_brokers(Path(directory)) as (theirs, ours):
        apis = {int(key): list(both) for key, both in sorted(theirs.versions().items())}
        versions = common_versions(theirs, ours)
        answers = as_json(ask_alone(theirs, versions, seed=SEED, count=COUNT))
    lines = ",\n".join(json.dumps(answer, separators=(",", ":")) for answer in answers)
    named = json.dumps({key.name: both for key, both in versions.items()})
    APIS.write_text("{\n" + ",\n".join(f'  "{key}": {both}' for key, both in apis.items()) + "\n}\n")
    GOLDEN.write_text(f'{{"versions": {named},\n"answers": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
