from .queries import active_producers as active_producers
from .queries import hanging as hanging
