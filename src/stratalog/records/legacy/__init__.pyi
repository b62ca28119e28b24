from . import message_format as message_format
from .lz4 import with_kafkas_checksum as with_kafkas_checksum
from .message_format import find_header as find_header
from .messages import LegacyBatch as LegacyBatch
