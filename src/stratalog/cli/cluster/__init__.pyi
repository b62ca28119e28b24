from .status import PartitionStatus as PartitionStatus, all_partitions as all_partitions
