"""The project's own instrument for speed: workloads made on a real server, peers, figures, ratios.

    workloads.py   W1, W2, W3: tables, statements, the cached binlog files
    systems.py     who decodes them: command lines, where peers are installed
    measure.py     one child process, its seconds, CPU and peak memory
    figures.py     medians, ratios, the table, the comparison with committed figures
    child_*.py     what runs in the children
    command.py     what the commands share
    __main__.py    `python -m benchmarks`: decoding files on one thread
    tcp.py         one subscriber by Ray handle and by Canal's TCP port
    e2e/           `python -m benchmarks.e2e`: end to end from a server's dump

Nothing in ray_canal imports it. docs/explanation/performance.md says how to run and read it.
"""
