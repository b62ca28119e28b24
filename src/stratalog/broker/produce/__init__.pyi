from .cluster_admission import (
    ClusterAdmission as ClusterAdmission,
)
from .cluster_admission import (
    PendingAdmission as PendingAdmission,
)
from .cluster_admission import (
    producer_of as producer_of,
)
from .large_batches import (
    LargeBatchChecks as LargeBatchChecks,
)
from .large_batches import (
    PendingCheck as PendingCheck,
)
from .produce_frames import (
    FLEXIBLE_FROM as FLEXIBLE_FROM,
)
from .produce_frames import (
    TOPIC_IDS_FROM as TOPIC_IDS_FROM,
)
from .produce_frames import (
    PartitionResult as PartitionResult,
)
from .produce_frames import (
    ProduceRequest as ProduceRequest,
)
from .produce_frames import (
    encode_produce as encode_produce,
)
from .produce_frames import (
    once_each as once_each,
)
from .produce_frames import (
    parse_produce as parse_produce,
)
from .produce_template import (
    ProduceTemplate as ProduceTemplate,
)
from .produce_work import (
    AskedTopic as AskedTopic,
)
from .produce_work import (
    PacedProduce as PacedProduce,
)
from .produce_work import (
    ProduceWork as ProduceWork,
)
from .producing import (
    Admission as Admission,
)
from .producing import (
    PendingAcks as PendingAcks,
)
from .producing import (
    PendingAppends as PendingAppends,
)
from .producing import (
    begins_transactional as begins_transactional,
)
