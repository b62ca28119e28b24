"""kcat, the command line of librdkafka, talks to our broker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest

import stratalog

pytestmark = pytest.mark.interop


def kcat(broker: stratalog.Broker, *args: str, stdin: str = "") -> str:
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        pytest.skip("there is no kcat (or kafkacat) on the path")
    command = [program, "-b", broker.bootstrap_servers, *args]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=True, timeout=60).stdout


def test_it_produces_and_consumes_keys_values_and_headers(broker: stratalog.Broker) -> None:
    kcat(broker, "-P", "-t", "kcat", "-K", ":", "-H", "a=1", "-z", "snappy", stdin="k1:v1\nk2:v2\n")
    printed = kcat(broker, "-C", "-t", "kcat", "-o", "beginning", "-e", "-q", "-f", "%o %k %s %h\\n")
    assert printed.splitlines() == ["0 k1 v1 a=1", "1 k2 v2 a=1"]


def test_it_lists_the_broker_and_its_topics(broker: stratalog.Broker) -> None:
    kcat(broker, "-P", "-t", "kcat", stdin="v\n")
    metadata = json.loads(kcat(broker, "-L", "-J"))
    assert [b["name"] for b in metadata["brokers"]] == [broker.bootstrap_servers]
    assert {"topic": "kcat", "partitions": 1} in [
        {"topic": t["topic"], "partitions": len(t["partitions"])} for t in metadata["topics"]
    ]


def test_it_consumes_in_a_group(broker: stratalog.Broker) -> None:
    kcat(broker, "-P", "-t", "kcat", stdin="".join(f"v{i}{os.linesep}" for i in range(10)))
    printed = kcat(broker, "-G", "group", "-X", "auto.offset.reset=earliest", "-c", "10", "-q", "kcat")
    assert printed.split() == [f"v{i}" for i in range(10)]
