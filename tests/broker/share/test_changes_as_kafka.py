"""Settings, states, topics and isolation change under members of share groups: they hear what Kafka 4.4.0 says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.broker.share.change_cases import CONFIG, run
from tests.golden.share_changes.make import ANSWERS

from stratalog.broker.server.server import Broker

KAFKA: dict[str, Any] = json.loads(ANSWERS.read_text())


def test_answers_are_kafkas(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        answers = json.loads(json.dumps(run(broker.bootstrap_servers)))
    assert answers.keys() == KAFKA.keys()
    different = {step: (found, KAFKA[step]) for step, found in answers.items() if found != KAFKA[step]}
    assert not different
