# Each target does all of its own set-up in .venv: Python 3.11 or later and pip are enough.
PYTHON ?= python3
WORKERS ?= 2
SERVE ?= 1
BIN := .venv/bin
READY := .venv/.ready
# One thread a test worker: two workers with two threads each only fight over two cores. Bytecode is kept whatever the
# environment says: the processes that tests start would compile the package again and again.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

FAULTS ?= .faults

.PHONY: demo test full faults check shape docs bench supply wheel install clean help
.DEFAULT_GOAL := help

help: ## what can be made
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 10

demo: $(READY) ## draw scenes, break 30% of the pairs, train, measure, audit, index, serve the page (SERVE=0: all but that)
	$(BIN)/matchlight demo -o demo $(if $(filter 0,$(SERVE)),,--serve)

test: check ## lint, types and the test suite
	$(PYTEST)

full: check ## the same with the load, growth and fault tests, and what is known of the packages below
	$(PYTEST) -m "" --ignore tests/serve/test_serve_load.py
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "" tests/serve/test_serve_load.py  # alone, or it would measure the others
	$(MAKE) supply

faults: $(READY) ## the table of faults and hostile input (about half an hour; stopped, it goes on from FAULTS=.faults)
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults -o $(FAULTS)

check: $(READY) ## lint and types alone
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

shape: ## figures of the code (Any, import cycles, layers, function lengths) against their bounds
	@$(PYTHON) tools/shape.py

docs: $(READY) ## the documentation site in site/: strict, and without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --clean
	@echo "open site/index.html, or with its search box: $(BIN)/python -m http.server -d site"

bench: $(READY) ## speed as one table of ratios against the plain way on this machine, and as bench.json
	$(BIN)/python benchmarks/ratios.py -o bench.json

supply: $(READY) ## licences of every dependency, a CycloneDX bill of materials, known faults where they can be looked up
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install -qq -c constraints.txt -e ".[supply]"
	$(BIN)/python tools/supply.py

wheel: $(READY) ## the wheel in dist/, the same bytes for the same commit
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/pip wheel -qq --no-deps --no-build-isolation -w dist .

install: $(READY) ## the virtual environment in .venv

# -qq keeps pip to its errors; what it warns of here (places it does not look in) is no one's business.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "matchlight needs Python 3.11 or later; say which: make PYTHON=python3.12" >&2; exit 1; }
	@echo "setting up .venv (about 3 minutes the first time)" >&2
	@$(PYTHON) -m venv .venv
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install -qq -c constraints.txt -e ".[dev]"
	@touch $@

clean: ## remove what make has made, the virtual environment included
	rm -rf .venv .faults demo site bench.json build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
