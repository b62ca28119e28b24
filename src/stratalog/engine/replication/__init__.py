"""Replication of partitions between the brokers of a cluster: in-sync replicas, followers and their fetchers."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
