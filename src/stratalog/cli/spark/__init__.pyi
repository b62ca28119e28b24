from .doctor import examined as examined
from .session import SessionOptions as SessionOptions
