from .plan import topic_config as topic_config
from .result import CompactResult as CompactResult
