"""Read, write and delete segments in the layout of Aiven's tiered storage plugin for Apache Kafka.

    <topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id>.log            records, in chunks
                                                                        .indexes        all indexes, concatenated
                                                                        .rsm-manifest   JSON, written last

Source: its documentation and sources (github.com/Aiven-Open/tiered-storage-for-apache-kafka), version 1 of the
manifest.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
