from .cluster_admission import (
    ClusterAdmission as ClusterAdmission,
    PendingAdmission as PendingAdmission,
    producer_of as producer_of,
)
from .large_batches import LargeBatchChecks as LargeBatchChecks, PendingCheck as PendingCheck
from .produce_frames import (
    FLEXIBLE_FROM as FLEXIBLE_FROM,
    TOPIC_IDS_FROM as TOPIC_IDS_FROM,
    PartitionResult as PartitionResult,
    ProduceRequest as ProduceRequest,
    encode_produce as encode_produce,
    once_each as once_each,
    parse_produce as parse_produce,
)
from .produce_template import AppendedTogether as AppendedTogether, ProduceTemplate as ProduceTemplate
from .produce_work import AskedTopic as AskedTopic, PacedProduce as PacedProduce, ProduceWork as ProduceWork
from .producing import (
    Admission as Admission,
    PendingAcks as PendingAcks,
    PendingAppends as PendingAppends,
    appended_result as appended_result,
    begins_transactional as begins_transactional,
    refusal_of as refusal_of,
)
