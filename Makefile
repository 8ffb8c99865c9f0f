# Everything that is done with this repository; `make` alone lists it. What needs more than a line
# is a script in tools/.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PACKAGING := pyproject.toml constraints.txt tools/environment.py tools/launcher.py
SOURCES := $(shell find src -name '*.py')
JAVASCRIPT := tests/wire/js

# Bytecode is kept, whatever the shell says: without it every process compiles all modules again, and
# pytest rewrites all assertions.
unexport PYTHONDONTWRITEBYTECODE

# Stamps: each is touched when its step is done, so that repeated calls cost nothing.
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
NODE := $(JAVASCRIPT)/node_modules/.stamp
COMPILED := build/compiled/.stamp
WHEELS := dist/.stamp

# One source, two forms: the compiled copy is found before the plain, editable one. PEEKLOCK_EXPECT
# lets the tests notice when they run the wrong one.
PLAIN := env -u PYTHONPATH PEEKLOCK_EXPECT=plain
FAST := env PYTHONPATH=$(CURDIR)/build/compiled PEEKLOCK_EXPECT=compiled
PYTEST := $(BIN)/python -m pytest
# A file is not divided, because its tests may wait together.
WIRE := -m "not torture" --numprocesses=3 --dist=loadfile
# On all cores: none of them has a port or a file that another one knows. T=tests/entity/test_x.py chooses some of any kind.
FAST_TESTS := tests --ignore=tests/wire --ignore=tests/crash --ignore=tests/pressure --ignore=tests/spark --ignore=tests/packages --numprocesses=auto --dist=worksteal
UNIT := $(or $(T),$(FAST_TESTS)) -m "not torture"

.PHONY: help setup run format check unit unit-compiled wire wire-partitioned wire-postgres wire-plain pressure spark packages test torture bench demo compile wheels clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DEV) $(NODE) ## make the virtual environment and install the tests' packages

run: $(RUNTIME) ## serve; plain while the compiled copy is built for the first time (PEEKLOCK_PURE=1: always)
	@exec $(BIN)/python -m tools.run

format: $(DEV) ## rewrite source and documents in one style
	$(BIN)/ruff check --quiet --fix-only . && $(BIN)/ruff format --quiet . && $(BIN)/python -m tools.markdown && $(BIN)/python -m tests.architecture.shared && $(BIN)/python -m tests.architecture.diagram

check: $(DEV) ## lint, types, import rules, tidiness; all that fails is told
	@$(BIN)/python -m tools.check

unit: $(DEV) ## the fast tests: no port, no sleep; T=PATH for some of them
	$(PLAIN) $(PYTEST) $(UNIT)

unit-compiled: $(DEV) $(COMPILED)
	$(FAST) $(PYTEST) $(UNIT)

wire: $(DEV) $(NODE) $(COMPILED) ## the real clients against a listening broker
	$(FAST) $(PYTEST) tests/wire $(WIRE) && $(FAST) $(PYTEST) tests/crash -m "not torture"

wire-plain: $(DEV) $(NODE)
	$(PLAIN) $(PYTEST) tests/wire -m "smoke and not torture"

# The same tests where each queue and topic is partitioned, over four stores; but for those of
# connections, keys and programs, which never notice.
SAME_FOR_ALL := authorization bench_client celery cli cli_manners client_administration client_connection client_forking connection directories examples \
	namespaces nodes operator_pages process testing tokens transports tutorials uamqp
wire-partitioned: $(DEV) $(NODE) $(COMPILED)
	PEEKLOCK_WIRE_PARTITIONED=1 $(FAST) $(PYTEST) tests/wire $(WIRE) $(SAME_FOR_ALL:%=--ignore=tests/wire/test_%.py)

# The chosen ones again where the store is a database.
wire-postgres: $(DEV) $(NODE) $(COMPILED)
	PEEKLOCK_WIRE_POSTGRES=1 $(FAST) $(PYTEST) tests/wire -m "smoke and not torture" --numprocesses=3 --dist=loadfile $(SAME_FOR_ALL:%=--ignore=tests/wire/test_%.py)

# Alone, one after the other: what others have to wait is measured. A machine may stall by itself, so
# a wait or a step that was too long must be seen three times.
pressure: $(DEV) $(COMPILED) ## abuse of a listening broker, and what its other users notice
	$(FAST) $(PYTEST) tests/pressure -m "not torture" -p no:xdist --reruns 2 --only-rerun "others waited|long steps|waits above their bounds"

# A session of Spark takes seconds to start: two processes, each with one for all of its tests.
spark: $(DEV) $(COMPILED) ## the pipeline, in a real Spark against a real broker
	$(FAST) $(PYTEST) tests/spark -m "not torture" --numprocesses=2 --dist=loadfile

packages: $(DEV) $(WHEELS) ## source, wheels and clone, installed into fresh environments
	$(PLAIN) $(PYTEST) tests/packages -m "not torture" --numprocesses=2 --dist=worksteal

test: check unit unit-compiled wire wire-partitioned wire-postgres wire-plain pressure spark packages ## everything that must pass on each change

torture: $(DEV) $(NODE) $(COMPILED) ## the long crash runs
	PEEKLOCK_EXPLORE=1 $(FAST) $(PYTEST) $(UNIT)
	$(FAST) $(PYTEST) tests -m torture --timeout 0

bench: $(DEV) $(COMPILED) ## measure, beside RabbitMQ
	$(BIN)/python -m bench

demo: $(DEV) $(COMPILED) ## a shop with failing workers, the pipeline beside it, and one page of what they did
	$(FAST) $(BIN)/python -m tools.demo

compile: $(COMPILED) ## build the compiled copy in build/compiled

wheels: $(WHEELS) ## build dist/: the source, the plain wheel, and the compiled one where a C compiler is there

clean: ## remove everything that make made, but no data
	rm -rf $(VENV) build dist $(JAVASCRIPT)/node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis src/*.egg-info

$(RUNTIME): $(PACKAGING)
	$(PYTHON) tools/environment.py compile,postgres $@

$(DEV): $(PACKAGING)
	$(PYTHON) tools/environment.py dev $@ && touch $(RUNTIME)

$(NODE): $(JAVASCRIPT)/package-lock.json $(JAVASCRIPT)/package.json | $(DEV)
	$(BIN)/python -m tools.node $@

$(COMPILED): $(SOURCES) setup.py tools/compile.py | $(RUNTIME)
	$(BIN)/python -m tools.compile && touch $@

$(WHEELS): $(SOURCES) setup.py pyproject.toml MANIFEST.in README.md tools/compile.py tools/wheels.py | $(RUNTIME)
	$(BIN)/python -m tools.wheels && touch $@
