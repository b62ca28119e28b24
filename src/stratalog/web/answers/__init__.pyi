from .cluster import (
    ClusterStateAnswer as ClusterStateAnswer,
    EventsAnswer as EventsAnswer,
    SecurityAnswer as SecurityAnswer,
)
from .groups import GroupsAnswer as GroupsAnswer, OneGroupAnswer as OneGroupAnswer
from .outcomes import (
    DoneAnswer as DoneAnswer,
    ErrorAnswer as ErrorAnswer,
    LiveAnswer as LiveAnswer,
    OpenApiAnswer as OpenApiAnswer,
    ReadyAnswer as ReadyAnswer,
    WrongFieldsAnswer as WrongFieldsAnswer,
)
from .overview import OverviewAnswer as OverviewAnswer
from .records import BatchesAnswer as BatchesAnswer, MessagesAnswer as MessagesAnswer, RecordsAnswer as RecordsAnswer
from .segments import RetentionAnswer as RetentionAnswer, SegmentsAnswer as SegmentsAnswer
from .tier import TierAnswer as TierAnswer, TierStatusAnswer as TierStatusAnswer
from .topics import (
    ConsumersAnswer as ConsumersAnswer,
    OneTopicAnswer as OneTopicAnswer,
    PartitionsAnswer as PartitionsAnswer,
    SettingsAnswer as SettingsAnswer,
    TopicsAnswer as TopicsAnswer,
)
