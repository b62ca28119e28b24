"""Map user partitions to partitions of `__remote_log_metadata`.

As Kafka's `RemoteLogMetadataTopicPartitioner`: murmur2 over the four bytes of Java's `Objects.hash` of the topic id's
low and high halves and the partition number. All events of a user partition are in one metadata partition, in order.
"""

from __future__ import annotations

from stratalog.remote.api import TopicIdPartition

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF


def metadata_partition(partition: TopicIdPartition, partition_count: int) -> int:
    """Return the metadata partition, in 0 .. partition_count - 1."""
    high, low = partition.topic_id.int >> 64, partition.topic_id.int & _M64
    hashed = 1
    for part in (_hash_of_long(low), _hash_of_long(high), partition.partition & _M32):
        hashed = (31 * hashed + part) & _M32
    return (murmur2(hashed.to_bytes(4, "big")) & 0x7FFFFFFF) % partition_count


def _hash_of_long(value: int) -> int:
    return (value ^ (value >> 32)) & _M32


def murmur2(data: bytes) -> int:
    """Kafka's murmur2, as an unsigned 32-bit value."""
    m, length = 0x5BD1E995, len(data)
    h = (0x9747B28C ^ length) & _M32
    whole = length & ~3
    for i in range(0, whole, 4):
        k = (int.from_bytes(data[i : i + 4], "little") * m) & _M32
        k = ((k ^ (k >> 24)) * m) & _M32
        h = ((h * m) & _M32) ^ k
    if length > whole:
        h = ((h ^ int.from_bytes(data[whole:], "little")) * m) & _M32
    h = ((h ^ (h >> 13)) * m) & _M32
    return h ^ (h >> 15)
