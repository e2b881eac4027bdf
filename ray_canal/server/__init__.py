"""Canal's TCP server: sockets, limits and turns around canal/session.py. No Ray here.

A destination is behind the port `Store` (ports.py); actors/tcp_server_actor.py gives it Ray's.
"""
