"""Sockets and files: MySQL connection and dump, catalog queries, local binlog files."""
