from .result import TopicStats as TopicStats
from .run import SAMPLE_BYTES as SAMPLE_BYTES
