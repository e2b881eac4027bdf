"""Status, metrics, diagnosis and notices of a destination: all that is told of it to people.

    status                status_report.py, status_record.py (its keys), log_stats.py, activity.py,
                          source_contact.py, traffic.py (of which tables), publish.py (metrics)
    times                 stages.py (busy and waiting), rates.py
    what is wrong         diagnosis.py (why nothing comes), failure_advice.py (what to do),
                          full_log.py (who keeps it full), purge_watch.py
    notices               notices.py, webhook.py
"""
