# Everything is run from here, and only make, Python 3.11+ and Java 17+ are needed beforehand.

VENV := .venv
BIN := $(VENV)/bin
PYTHON_IN_VENV := $(BIN)/python
INSTALLED := $(VENV)/installed
SITE_TOOLS := $(VENV)/site-tools
CLASSES := $(VENV)/classes.jsa
PYTHON ?=
export PYTHON
# JAVA=pip, where there is no Java: make demo JAVA=pip installs one of the Python index into .venv.
JAVA ?=
export JAVA
# Given to the program that a target runs: make test ARGS="-k replay", make demo ARGS="--rows 20000".
ARGS ?=
# SHORT=1 leaves out of `make interop` and `make soak` what only `make nightly` runs.
SHORT ?=
UNLESS_SHORT = $(if $(SHORT), and not nightly)

QUICK_STREAMS = tests/spark/test_iceberg_streams.py
QUICK = tests/protocol tests/test_house.py tests/test_settings.py tests/catalog/test_commit.py tests/catalog/test_manifests.py \
	tests/catalog/test_prepared.py tests/catalog/test_tables.py tests/writer/test_columns.py tests/writer/test_task.py \
	$(QUICK_STREAMS)::test_a_stream_of_files_becomes_a_table_one_snapshot_a_batch \
	$(QUICK_STREAMS)::test_a_replayed_batch_adds_neither_snapshot_nor_file \
	$(QUICK_STREAMS)::test_two_queries_of_one_driver_write_two_tables

.DEFAULT_GOAL := help
.PHONY: help demo kafka-demo playground dist test coverage quick interop matrix prove guarantees soak nightly bench bench-commit bench-crowd bench-audit bench-scale lint format types imports examples site site-check check install lock machine clean

help: ## Say what there is to make.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "make %-14s %s\n", $$1, $$2 }'

demo: $(INSTALLED) ## The main job on 336,776 real flights, killed twice on the way, and its proof.
	@$(BIN)/lakesink demo $(ARGS)

kafka-demo: $(INSTALLED) ## Kafka, event-time windows, exactly once: driver and broker killed at random; ARGS=--files needs no Maven.
	@$(PYTHON_IN_VENV) -m examples.kafka_windows $(ARGS)

playground: $(INSTALLED) ## Kafka, S3, a REST catalog, PostgreSQL, Trino and Spark, and a prompt that breaks them; needs Maven, Java 25 and Go.
	@$(PYTHON_IN_VENV) -m examples.playground

test: $(CLASSES) ## All tests but the long ones and those beside other engines, two at a time.
	$(PYTHON_IN_VENV) -m pytest -m "not soak and not nightly and not interop and not site" -n 2 --dist worksteal $(ARGS)

coverage: $(CLASSES) ## The same tests, and which lines of the product no test runs, in child processes either.
	$(PYTHON_IN_VENV) -m pytest -m "not soak and not nightly and not interop and not site" -n 2 --dist worksteal --cov --cov-report=term:skip-covered $(ARGS)

quick: check ## Style, types, contracts, and the tests that fail first, in about a minute.
	$(PYTHON_IN_VENV) -m pytest -n 2 --dist worksteal $(QUICK) $(ARGS)

interop: $(CLASSES) ## Beside Trino, Spark SQL, DuckDB, Flink and real servers, which it fetches (SHORT=1: a slice); needs Maven, Java 25, Go, cargo and gcc too.
	$(PYTHON_IN_VENV) -m servers.fetch $(if $(SHORT),--short)
	$(PYTHON_IN_VENV) -m pytest -m "interop$(UNLESS_SHORT)" tests/interop -n 2 --no-loadscope-reorder $(ARGS)

matrix: $(INSTALLED) ## The main tests on every version of PySpark that lakesink is for, or on VERSIONS="4.2 4.3".
	$(PYTHON_IN_VENV) -m servers.matrix $(VERSIONS)

prove: $(INSTALLED) ## Try for 40 minutes, or HOURS=n, to make it lose a row or count one twice; needs Maven, and gcc for spin.
	$(PYTHON_IN_VENV) -m proof $(if $(HOURS),--minutes $(shell awk 'BEGIN { print 60 * $(HOURS) }')) $(ARGS)

guarantees: $(INSTALLED) ## What eight kinds of sink make of a SIGKILL at every bad moment, counted: 5 to 8 minutes; needs Maven.
	$(PYTHON_IN_VENV) -m proof.guarantees $(ARGS)

soak: $(CLASSES) ## The long tests: random kills, memory, whole suites (SHORT=1: a slice). Two at a time.
	$(PYTHON_IN_VENV) -m pytest -m "$(if $(SHORT),soak and not nightly,(soak or nightly) and not interop)" -n 2 --dist worksteal $(ARGS)

nightly: ## Everything whole, long kills and all engines included: about four hours on two cores.
	@bash scripts/nightly.sh

bench: $(INSTALLED) ## Speed beside Iceberg's Spark sink and others, in turn in one run; needs Maven. ARGS="--only W1" is shorter.
	$(PYTHON_IN_VENV) -m benchmarks $(ARGS)

bench-commit: $(INSTALLED) ## Milliseconds of one commit, by the number of snapshots.
	$(PYTHON_IN_VENV) -m benchmarks.commit_latency $(ARGS)

bench-crowd: $(INSTALLED) ## Commits a second of many processes on one table, on SQLite and PostgreSQL.
	$(PYTHON_IN_VENV) -m benchmarks.committers $(ARGS)

bench-audit: $(INSTALLED) ## Seconds and memory of status, log, as-of and audit of long histories.
	$(PYTHON_IN_VENV) -m benchmarks.audit $(ARGS)

bench-scale: $(INSTALLED) ## How cost grows, for docs/evidence/scale.md: about 25 minutes (SHORT=1: small sizes, writes nothing); needs Maven.
	$(PYTHON_IN_VENV) -m benchmarks.scale $(if $(SHORT),--short,--write) $(ARGS)

site: $(SITE_TOOLS) ## The documentation as a site in build/site/html; ARGS=--serve shows it on port 8000.
	$(PYTHON_IN_VENV) -m website build $(ARGS)

site-check: site ## Every page of it in a browser: links, layout, colours, search. Fetches a Chromium if there is none.
	$(PYTHON_IN_VENV) -m website check
	$(PYTHON_IN_VENV) -m pytest -m site tests/website

dist: $(INSTALLED) ## Wheel and sdist, checked in an empty environment, into dist; ARGS=--short takes a minute and no Spark.
	$(PYTHON_IN_VENV) -m release dist $(ARGS)

check: lint types imports ## Everything that is checked without running it.

lint: $(INSTALLED) ## Style.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED) ## Mend what style can mend by itself.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(INSTALLED) ## Types, strict.
	$(BIN)/mypy

imports: $(INSTALLED) ## Which room may import which.
	$(BIN)/lint-imports

examples: $(INSTALLED) ## Run every example in a folder of its own.
	$(PYTHON_IN_VENV) -m pytest tests/demo/test_examples.py $(ARGS)

install: $(INSTALLED) ## Create .venv from the lock.

# The build tools come first: packages that have no wheel are built with these very versions.
$(INSTALLED): requirements/build.txt requirements/dev.txt pyproject.toml | machine
	@test -x $(PYTHON_IN_VENV) || "$$(sh scripts/check-machine.sh)" -m venv --clear $(VENV)
	@echo "Installing into $(VENV): the first time takes a minute or two, PySpark alone is 400 MB."
	$(PYTHON_IN_VENV) -m pip install --disable-pip-version-check -r requirements/build.txt
	$(PYTHON_IN_VENV) -m pip install --disable-pip-version-check --no-build-isolation -r requirements/dev.txt
	$(PYTHON_IN_VENV) -m pip install --disable-pip-version-check --no-build-isolation --no-deps -e .
	$(if $(filter pip,$(JAVA)),$(PYTHON_IN_VENV) -m pip install --disable-pip-version-check -r requirements/java.txt)
	@touch $(INSTALLED)

$(SITE_TOOLS): $(INSTALLED) requirements/site.txt
	$(PYTHON_IN_VENV) -m pip install --disable-pip-version-check -r requirements/site.txt
	@touch $(SITE_TOOLS)

# Without the archive each JVM of the tests starts slower, and nothing else differs: a failure here stops nobody.
$(CLASSES): $(INSTALLED)
	@echo "Archiving the classes of Spark, once: every JVM of the tests starts faster by it."
	-@$(PYTHON_IN_VENV) -m testkit.class_archive > /dev/null 2>&1

lock: | machine ## Resolve the lock anew.
	sh scripts/lock.sh

machine:
	@sh scripts/check-machine.sh > /dev/null

clean: ## Remove what make has made.
	rm -rf $(VENV) .bench build/site dist lakesink-demo kafka-demo
