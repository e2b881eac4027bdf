"""Databases as targets: tables that follow the source's.

    what they share       mirror.py (the sink), sender.py (one of its connections),
                          mirror_prepared.py (rows of prepared XA transactions)
    what each does        port.py, and mysql.py, postgres.py, duckdb.py
    values as their text  mysql_literals.py, postgres_text.py, value_texts.py
"""
