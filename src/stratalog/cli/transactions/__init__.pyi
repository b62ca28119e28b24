from .queries import active_producers as active_producers, hanging as hanging
