from .log_manager import LoadReport as LoadReport, LogManager as LogManager, TopicSpec as TopicSpec
from .partition import NO_EPOCH as NO_EPOCH, Partition as Partition, RemoteFetchData as RemoteFetchData
from .replica_changes import ReplicaChanges as ReplicaChanges
