"""The upstream of a log, in processes of its own: fetcher, parser, transaction buffer and
decode tasks.

    each of them       fetcher.py, parser.py, transaction_buffer_actor.py, decoder.py
    how they start     stages.py; spare.py, spare_pool.py and spare_record.py keep one process ready
    who speaks to them upstreams.py, for destination/pump.py
"""
