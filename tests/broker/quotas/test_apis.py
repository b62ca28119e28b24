"""DescribeClientQuotas and AlterClientQuotas answer as Kafka does, and what was set outlives a restart."""

from __future__ import annotations

import json

from tests.golden.quotas.make import GOLDEN
from tests.support.quota_cases import answers

from stratalog import Broker


def test_answers_to_requests_for_quotas_are_kafkas() -> None:
    kafkas = json.loads(GOLDEN.read_text())
    with Broker() as broker:
        ours = json.loads(json.dumps(answers(broker.bootstrap_servers)))
    assert ours.keys() == kafkas.keys()
    assert {title: (said, ours[title]) for title, said in kafkas.items() if said != ours[title]} == {}
