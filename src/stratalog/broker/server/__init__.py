"""Sockets, connections and the dispatch of requests."""
