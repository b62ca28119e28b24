"""Segments as the tiered-storage plugin of Aiven for Apache Kafka stores them: read, written and deleted.

    <topic>-<topic id>/<partition>/<base offset, 20 digits>-<segment id>.log            records, in chunks
                                                                        .indexes        all indexes one after the other
                                                                        .rsm-manifest   JSON, the last one to be written

Source: its documentation and sources (github.com/Aiven-Open/tiered-storage-for-apache-kafka), version 1 of the
manifest.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
