"""A synchronous Kafka client: any request by its name, and the few that readers of whole partitions need.

    with Cluster("127.0.0.1:9092") as cluster:
        answer = cluster.any.call(ApiKey.CREATE_PARTITIONS, (0, 3), topics=[{"name": "t", "count": 2}])
        end = cluster.list_offsets({("t", 0): LATEST_OFFSET})["t", 0].offset
        fetched = cluster.fetch("t", 0, 0, max_bytes=1 << 20)

Parts of a request are dicts; what is not given is zero, empty, null or its default, and what a version lacks is
dropped.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
