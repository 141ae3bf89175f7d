# `make demo` and `make test` need Python 3.11 or newer and nothing else.
# PYTHON picks the interpreter, PIP_ARGS goes to pip (an index, a cache).

RECENT := import sys; sys.exit(sys.version_info < (3, 11))
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c '$(RECENT)' 2>/dev/null && echo $$python && break; done)
endif
PIP_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PYPROJECTS := pyproject.toml $(wildcard plugins/*/pyproject.toml)
PLUGINS := $(patsubst %/pyproject.toml,-e ./%,$(wildcard plugins/*/pyproject.toml))
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_ARGS)
PINS := --constraint constraints-cpu.txt
MYPY := $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache \
	--explicit-package-bases

# Kernels are compiled on the CPU: several processes, where xdist is installed. They share the GPU's memory (conftest.py).
PROCESSES = $(shell $(BIN)/python -c 'import xdist' 2>/dev/null && \
	printf -- '-n auto --maxprocesses 12 --dist worksteal -p no:benchmark')

export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-gpu lint dist clean

demo: $(VENV)/.run
	$(BIN)/mmcore demo

test: lint
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal -m "not slow and not gpu and not timing"
	$(BIN)/python -m pytest -m timing

test-gpu: $(VENV)/.dev
	$(BIN)/python -m pytest -m gpu --durations 12 $(PROCESSES)

lint: $(VENV)/.dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(MYPY) mmcore tests examples benchmarks
	set -e; for plugin in plugins/*/; do (cd $$plugin && MYPYPATH=training $(MYPY) .); done

# A wheel and an sdist of the core and of each plugin.
dist: $(VENV)/.dev
	set -e; for project in $(dir $(PYPROJECTS)); do $(BIN)/python -m build --quiet --outdir dist $$project; done

# The stamps: set-up runs once, and again when a pyproject.toml or a pin changes.
$(VENV)/.run: $(PYPROJECTS) constraints-cpu.txt
	@$(or $(PYTHON),false) -c '$(RECENT)' || \
		{ echo "mmcore needs Python 3.11 or newer; say where: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (about 2 GB, a few minutes)"
	$(INSTALL) $(PINS) -e '.[hub]' $(PLUGINS)
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(INSTALL) $(PINS) -e '.[dev]' $(PLUGINS)
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
