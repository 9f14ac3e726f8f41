# pairbus: `make` lists the targets. Everything happens in .venv in this folder; nothing is installed elsewhere,
# except a browser for the tests of the live page, if the machine allows it (see tools/browser.sh, tools/promtool.sh).
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(VENV)/uv/bin/uv
STAMP := $(VENV)/.ready
SDK_STAMP := .venv-sdk-7.14.3/.ready
JOBS ?= 5
export PYTHONHASHSEED := 0
export UV_PYTHON_DOWNLOADS := never

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## ?/  \1|/' | column -t -s '|' 2>/dev/null \
	  || grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(STAMP) ## make .venv with pairbus, all its extras and the tools, from pinned requirements

$(UV): requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pairbus needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv --clear $(VENV)/uv
	$(VENV)/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@touch $@

$(STAMP): $(UV) requirements/dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv --without-pip $(VENV)
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.txt
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

$(SDK_STAMP): $(UV) requirements/sdk-7.14.3.txt pyproject.toml
	test -x .venv-sdk-7.14.3/bin/python || $(PYTHON) -m venv --without-pip .venv-sdk-7.14.3
	$(UV) pip install --quiet --python .venv-sdk-7.14.3/bin/python --require-hashes -r requirements/sdk-7.14.3.txt
	$(UV) pip install --quiet --python .venv-sdk-7.14.3/bin/python --no-deps --editable .
	@touch $@

.PHONY: lock
lock: $(UV) ## compile the pinned requirement files from pyproject.toml
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  --all-extras --group test --group lint --group docs pyproject.toml -o requirements/dev.txt
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
	  requirements/sdk-7.14.3.in -o requirements/sdk-7.14.3.txt
	for client in uamqp python-qpid-proton; do echo $$client | $(UV) pip compile --quiet --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header - -o requirements/client-$$client.txt; done
	echo uv | $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header - -o requirements/uv.txt

.PHONY: gen
gen: $(STAMP) ## write the generated files: the sync code, diagrams, tables of the reference
	$(BIN)/python tools/gen.py

.PHONY: fmt
fmt: $(STAMP) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix-only --quiet .

.PHONY: lint
lint: $(STAMP) ## check format, lint, import contracts and that generated files are current
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python tools/gen.py --check

.PHONY: type
type: $(STAMP) ## check types: mypy --strict, and pyright on an application that uses pairbus
	$(BIN)/mypy
	if command -v node >/dev/null; then $(BIN)/pyright; else echo "pyright needs node: left out"; fi

.PHONY: test
test: $(STAMP) $(SDK_STAMP) ## run the tests; installs everything that they need
	@tools/browser.sh
	@tools/promtool.sh
	$(BIN)/python tools/run_tests.py $(JOBS)

.PHONY: test-all
test-all: $(STAMP) $(SDK_STAMP) ## also run the long tests: crashes, clusters, all commands of the documentation
	@tools/browser.sh
	@tools/promtool.sh
	$(BIN)/python tools/run_tests.py --all $(JOBS)

.PHONY: test-fast
test-fast: $(STAMP) ## run the tests that need no Java and no browser
	$(BIN)/pytest -n $(JOBS) --dist loadfile -m 'not spark and not browser and not crash and not slow and not long'

.PHONY: coverage
coverage: $(STAMP) ## measure the branch coverage of the pure packages by their own tests: at least 95 % of each
	$(BIN)/python tools/coverage.py

.PHONY: bench
bench: $(STAMP) ## run the benchmarks: one line `name value unit` per figure
	$(BIN)/python -m benchmarks

.PHONY: simulate
simulate: $(STAMP) ## run seeded outages of a simulated pair: make simulate ARGS="--seeds 1:100"
	$(BIN)/python -m simulation $(ARGS)

.PHONY: soak
soak: $(STAMP) ## run real processes under faults, and account for every message: make soak ARGS="--faults 20"
	$(BIN)/python -m soak $(ARGS)

.PHONY: demo
demo: $(STAMP) ## run an outage: no message is lost, and you see what it cost
	$(BIN)/pairbus demo $(ARGS)

.PHONY: docs
docs: $(STAMP) ## build the documentation site into docs/_build/html
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html

.PHONY: check
check: lint type docs test coverage ## run all checks: do it before you submit a change

.PHONY: clean
clean: ## remove all built files
	rm -rf .venv .venv-sdk-7.14.3 docs/_build build dist .mypy_cache .ruff_cache
