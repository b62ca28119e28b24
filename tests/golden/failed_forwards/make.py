"""Make `answers.json`: what Kafka's request classes answer when the controllers did not.

python -m tests.golden.failed_forwards.make
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.broker.cluster.failed_forward_cases import cases
from tests.support.reference_jars import BROKER_JARS, classpath, java

HERE = Path(__file__).parent


def main() -> None:
    asked = list(cases())
    lines = "".join(f"{int(key)} {version} {message.hex()}\n" for _, key, version, message in asked)
    command = [java(), "-cp", classpath(BROKER_JARS), str(HERE / "FailedForwards.java")]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    told = [line.split() for line in done.stdout.splitlines()]
    answers = {name: answer for (name, *_), answer in zip(asked, told, strict=True)}
    shown = ",\n".join(f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items())
    (HERE / "answers.json").write_text(f"{{\n{shown}\n}}\n")


if __name__ == "__main__":
    main()
