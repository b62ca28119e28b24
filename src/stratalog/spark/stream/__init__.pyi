from .consumer_lag import Lag as Lag, lag as lag
from .options import StreamOptions as StreamOptions, parse_for_either as parse_for_either
from .reader import StreamReader as StreamReader
