from .data_dirs import open_data_dirs as open_data_dirs
from .store import open_store as open_store, topics_in as topics_in
from .times import span_ms as span_ms, time_ms as time_ms, time_text as time_text
