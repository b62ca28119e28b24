from .catalog import ACTIONS as ACTIONS, PAGES as PAGES
from .record_text import visible as visible
from .records import raw as raw
