from .server import WebServer as WebServer
