from .client_telemetry import ClientTelemetry as ClientTelemetry
from .pushed_values import read_pushed as read_pushed
