from .command import require_log_directory as require_log_directory
