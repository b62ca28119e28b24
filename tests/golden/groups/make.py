"""Make `consumer_offsets.json`: the records that Apache Kafka 4.4.0 wrote to `__consumer_offsets` for
`tests/broker/groups/scenario.py`, partition by partition in the order of the log.

    python -m tests.golden.groups.make

Each record is [partition, key, value or null] in hexadecimal. Ids of members and topics and all times differ from run to
run, which is why the bytes are kept.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.broker.groups.scenario import play
from tests.support.consumer_offsets import stored_records
from tests.support.goldens import write_records
from tests.support.reference_kafka import ReferenceKafka

GOLDEN = Path(__file__).parent / "consumer_offsets.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        with ReferenceKafka(directory, config={"offsets.topic.num.partitions": "50"}) as kafka:
            play(kafka.bootstrap_servers)
        records = stored_records(kafka.data_dir)
    write_records(GOLDEN, records)


if __name__ == "__main__":
    main()
