"""A plugin of pytest for kafka-python's tests: each client that they make has the settings in `$KAFKA_LOGIN` (JSON)."""

from __future__ import annotations

import json
import os
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

_LOGIN = json.loads(os.environ["KAFKA_LOGIN"])


def _log_in(client: Any) -> None:
    begin = client.__init__

    def with_login(self: Any, *args: Any, **settings: Any) -> None:
        begin(self, *args, **(settings | _LOGIN))

    client.__init__ = with_login


for _client in (KafkaAdminClient, KafkaConsumer, KafkaProducer):
    _log_in(_client)
