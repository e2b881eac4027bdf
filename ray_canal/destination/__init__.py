"""A destination's whole life, without Ray: `destination.py` joins the services, `state.py` is what
they share.

Where to look first:

    its calls             api.py (all of them), delivery.py (get, ack, rollback), subscribers.py,
                          operations.py (an operator's), snapshots.py
    its life              lifecycle.py, supervisor.py (back-off), ownership.py and epoch_guard.py
                          (one owner), failures.py and failure_advice.py
    its upstream          ports.py (Runtime, Upstream), pump.py, fetcher.py, fetcher_thread.py,
                          fused_upstream.py, parsing.py, second_look.py (a checksum that fails)
    its log               log_pipeline.py, current_log.py, disk_state.py, log_folders.py,
                          full_log.py (who keeps it full)
    who is behind         catch_up.py and catch_ups.py (a stream of one's own), placement.py,
                          after_purge.py
    who is silent         attendance.py (who last called when), expiry.py, departures.py
    what a get hands out  message_head.py, handed_out.py (answers that were lost), arrivals.py
                          (a new TCP connection ends the gets of the one before)
    what is kept          records.py (all of it) and the *_record.py, schema_records.py
    snapshots             snapshot_run.py, snapshot_placer.py, snapshot_pace.py, snapshot_home.py,
                          row_reader_thread.py
    status and people     status_report.py, stages.py, rates.py, traffic.py, diagnosis.py (why
                          nothing comes), alarms.py, purge_watch.py, webhook.py, publish.py
"""
