"""Keep the latest value of each key: in log directories that no broker serves, and in buckets.

    1  keys      for each segment: put the hash of each key, with the record's offset, into the bucket of the hash
    2  newest    for each bucket, from the newest segment to the oldest: a record whose key was seen is superseded
    3  rewrite   for each group of segments: write the records that are neither superseded nor expired to a new segment
    4  publish   replace the old segments by the new ones: local, in a bucket, or with its brokers

Steps 1 to 3 exchange a few large rows of packed bytes (`steps`). Native loops do the work on records. No task holds
more than the keys of one bucket, or the superseded offsets of one segment. `plan` chooses the segments and groups.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
