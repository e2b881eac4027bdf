"""Records of a destination in the backends of `meta/`, each written under its owner's epoch.

records.py has all of it: subscriber_table.py, batch_id_record.py, filter_record.py,
start_record.py, timeline_record.py, schema_records.py.
"""
