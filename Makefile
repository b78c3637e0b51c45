# Needs python3 (3.11 or newer), bash and make; everything else is installed into .venv.
# A stamp per set of extras records an install: it is renewed only when pyproject.toml or constraints.txt change.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Two workers of one BLAS thread each: with two each, on two cores, they wait for each other longer than they compute.
TEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal
# Nearly every program of the default tests runs once or twice: optimising it would take longer than running it.
QUICK := XLA_FLAGS="$$($(BIN)/python tests/quick.py)"

# The oldest and the newest versions that pyproject.toml admits, each in an environment of its own.
UV := $(BIN)/uv pip install --quiet --python

.PHONY: help demo test test-all test-browser test-oldest test-newest chromium lint bench docs dist clean

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.stamp-plots ## Run the guided example
	$(BIN)/quantprop demo

test: $(VENV)/.stamp-test ## Run the tests, without the long campaigns
	$(QUICK) $(TEST)

test-all: $(VENV)/.stamp-test ## Run all tests, campaigns included, and check shapes and types in all of them
	QUANTPROP_CHECKED=1 $(TEST) -m "not browser"

test-browser: $(VENV)/.stamp-browser chromium ## Open the report in a headless Chromium
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

test-oldest: $(VENV)/.stamp-release ## Run the tests with the oldest versions of what quantprop depends on
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/oldest
	$(UV) build/oldest --resolution lowest-direct -e '.[test]'
	$(QUICK) $(MAKE) --no-print-directory tests-of VERSIONS=oldest

test-newest: $(VENV)/.stamp-release ## Run the tests with the newest versions of what quantprop depends on
	$(BIN)/uv venv --quiet --clear --python $(PYTHON) build/newest
	$(UV) build/newest --upgrade -e '.[test]'
	$(QUICK) $(MAKE) --no-print-directory tests-of VERSIONS=newest

tests-of:
	OPENBLAS_NUM_THREADS=1 build/$(VERSIONS)/bin/python -m pytest -n 2 --dist worksteal

lint: $(VENV)/.stamp-dev ## Check style, formatting, types and wording
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python docs/voice.py

bench: $(VENV)/.stamp-plots ## Measure speed, alone and beside peers
	$(BIN)/python benchmarks/run.py

docs: $(VENV)/.stamp-docs ## Build the documentation into build/site, and check its links
	$(BIN)/python docs/check_links.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python docs/check_site.py build/site

dist: $(VENV)/.stamp-release ## Build the wheel and the sdist, and try both in empty environments
	rm -rf dist
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python tests/distribution.py dist

clean: ## Remove the environment, caches and build outputs
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis benchmarks/out benchmarks/.envs
	find . -name .git -prune -o \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +

# A browser of the system's own; nothing is downloaded by Playwright.
chromium:
	@if command -v chromium chromium-browser google-chrome > /dev/null; then exit 0; fi; \
	if [ "$$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then \
		echo "Installing chromium"; apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium > /dev/null; \
	else \
		echo "make test-browser needs Chromium: install it (on Debian: apt-get install chromium) and run this again" >&2; exit 1; \
	fi

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.version_info >= (3, 11) or sys.exit(f"quantprop needs Python 3.11 or newer; $(PYTHON) is {v}. Set PYTHON=...")'
	@echo "Creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# pip's own errors and warnings go to stderr untouched; of its stdout only one line per package is shown.
$(VENV)/.stamp-%: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing quantprop[$*] into $(VENV)"
	@$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -c constraints.txt -e '.[$*]' \
		| awk '/^Collecting / { print "  " $$2; fflush() } /^Installing / { print "  installing ..."; fflush() }'
	@$(BIN)/python -m compileall -q src  # pip does so for all but an editable package: half a second of every process
	@touch $@
