from . import data_keys as data_keys, keys as keys, manifest as manifest
from .data_keys import DataKeys as DataKeys
