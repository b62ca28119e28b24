"""Partition directories that Apache Kafka 4.4.0 wrote; `make.py` says how."""
