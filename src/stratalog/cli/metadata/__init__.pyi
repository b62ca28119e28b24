from .differences import unlike as unlike
