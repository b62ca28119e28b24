from .read import read_rows as read_rows, source_options as source_options
