from .doctor import examined as examined
