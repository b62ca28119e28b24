"""The remote tier: sealed segments in an object store, their metadata, and the tasks that copy and expire them.

Names, states and rules are Apache Kafka's (KIP-405, as of 4.4). Partitions are accessed through `log_view.LogView`
only.
"""
