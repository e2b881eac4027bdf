"""Canal's TCP server: sockets, limits and turns around canal/session.py. No Ray here.

A destination's store is behind the port `Store` (ports.py); actors/tcp_server.py gives it Ray's.
"""
