"""Keep the latest value of each key: in log directories that no broker serves, and in buckets.

    1  keys      every segment by itself: the hash of each key with the record's offset, into the bucket of the hash
    2  newest    every bucket by itself, from the newest segment to the oldest: a key that was seen before is superseded
    3  rewrite   every group of segments by itself: records that are neither superseded nor expired are written to one
    new segment 4  local, bucket, broker: new segments take the place of the old ones

Between 1 and 2, and 2 and 3, a few large rows of packed bytes are exchanged (`steps`); per-record work is in native
loops. No task holds more than the keys of one bucket, or the superseded offsets of one segment. `plan` says what is
done to what.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
