from .dispatch import (
    REGISTRY as REGISTRY,
    Api as Api,
    ApiKey as ApiKey,
    Caller as Caller,
    Chunk as Chunk,
    Deferred as Deferred,
    Registry as Registry,
    RequestContext as RequestContext,
    handles as handles,
    handles_frames as handles_frames,
)
from .listen_address import ListenAddress as ListenAddress, bind as bind, parse_address as parse_address
from .open_listeners import check_listeners as check_listeners
from .server import SETTINGS_FOR_TESTS as SETTINGS_FOR_TESTS, Broker as Broker
from .sliced_response import RecordSlices as RecordSlices, SlicedResponse as SlicedResponse
