"""A destination's whole life, without Ray: `destination.py` joins the services, `state.py` is what
they share.

Where to look first:

    its calls             api.py (all of them), delivery.py (get, ack, rollback), subscribers.py,
                          operations.py (an operator's)
    its life              lifecycle.py, supervisor.py (back-off), ownership.py and epoch_guard.py
                          (one owner), failures.py, current_config.py
    its upstream          ports.py (Runtime, Upstream), pump.py, fetcher.py, fetcher_thread.py,
                          parsing.py, second_look.py (a checksum that fails),
                          decode_window.py (chunks decoded side by side), skipped.py
    its log               log_pipeline.py, current_log.py, disk_state.py, log_folders.py
    who is behind         catch_up.py and catch_ups.py (a stream of one's own), admission.py,
                          pipeline_lookup.py (whose log is read), after_loss.py
    who is silent         attendance.py (who last called when), expiry.py, departures.py
    what a get hands out  log_pipeline.py, handed_out.py (answers that were lost), arrivals.py
                          (a new TCP connection ends the gets of the one before), loop_acks.py
    what is kept          records/
    how calls wait        wakeup.py (for a change), backend_thread.py (for a backend), blocking.py
                          (without an event loop)
    snapshots             snapshot/
    status and people     status/
"""
