"""The same requests, made by seed, to Apache Kafka and to ours: the answers have to be equal.

python -m tests.comparison --requests 100000 --seed 1
"""
