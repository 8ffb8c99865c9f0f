# Everything that is done with this repository; `make` alone lists it. What needs more than a line is a script in tools/.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PACKAGING := pyproject.toml setup.py constraints.txt tools/environment.py
SOURCES := $(shell find src -name '*.py' 2>/dev/null)
CHECKED := src tests tools setup.py

# Stamps: each is touched when its step is done, so that repeated calls cost nothing.
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
COMPILED := build/compiled/.stamp

# The compiled copy is put before the plain, editable one; both come from the same source.
AS_PLAIN := env -u PYTHONPATH PEEKLOCK_EXPECT=plain
AS_COMPILED := env PYTHONPATH=$(CURDIR)/build/compiled PEEKLOCK_EXPECT=compiled
PYTEST := $(BIN)/python -m pytest

.PHONY: help setup format check clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DEV) ## make .venv with everything for development

$(RUNTIME): $(PACKAGING)
	$(PYTHON) tools/environment.py "" $(RUNTIME)

$(DEV): $(PACKAGING)
	$(PYTHON) tools/environment.py dev $(DEV)
	touch $(RUNTIME)

clean: ## remove everything that make made, but no data
	rm -rf $(VENV) build tests/wire/js/node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis src/*.egg-info
