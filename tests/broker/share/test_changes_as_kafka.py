"""Settings, states, topics and isolation change under members of share groups: they hear what Kafka 4.4.0 says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.broker.share.change_cases import CONFIG, run
from tests.golden.share_changes.make import ANSWERS

from stratalog.broker.server.server import Broker

_BY_NAME = (
    "Kafka looks for the topic by its name, and finds the new one: a member hears of the old one once, as an error of "
    "the server. Here it hears each time that the topic of this id is gone"
)
#: Steps that are answered in another way, and why.
EXPLAINED = {
    "anew: the old one": _BY_NAME,
    "anew: the new one, not begun": _BY_NAME,
    "anew: the new one": _BY_NAME,
}
KAFKA: dict[str, Any] = json.loads(ANSWERS.read_text())


def test_answers_are_kafkas(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config=CONFIG) as broker:
        answers = json.loads(json.dumps(run(broker.bootstrap_servers)))
    assert answers.keys() == KAFKA.keys()
    different = {step: (found, KAFKA[step]) for step, found in answers.items() if found != KAFKA[step]}
    assert different.keys() == EXPLAINED.keys(), different
