from .cleaner_config import CleanerConfig as CleanerConfig
from .cleaner_manager import CleanerManager as CleanerManager
from .log_cleaner import LogCleaner as LogCleaner
