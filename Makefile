# Every command does its own set-up: a fresh machine needs only make and Python 3.11 or newer.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test check static suite types format-check lint imports deps locked servers format lock mutants bugs sim soak bench clean

# The Python that .venv is made with, where it should not be the first one found: make PYTHON=python3.13 test
export PYTHON ?=
# Tests start many programs: they are compiled once, not at every start.
unexport PYTHONDONTWRITEBYTECODE
bin := .venv/bin

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/ready ## Start Herdsman on this machine
	$(bin)/herdsman up

# Static checks and tests run beside each other: many tests wait for programs to start. Both are heard to their end.
# A new .venv is compiled only as far as the tests load it, which takes half of the time.
test: export PIP_COMPILE := 0
test: servers ## Check everything: static checks, and all tests against real servers
	@$(MAKE) --no-print-directory --jobs 2 --keep-going static suite || \
		{ echo 'Failed: lines with *** above name what, also among the static checks, which end before the tests.' >&2; exit 1; }

check: .venv/ready ## Check quickly: format, lint, types, imports, dependencies, unit tests
	@$(MAKE) --no-print-directory --jobs 2 static
	$(bin)/pytest tests/unit

format: .venv/ready ## Format the code and fix what can be fixed
	$(bin)/ruff format
	$(bin)/ruff check --fix

lock: .venv/bin/uv ## Lock the dependencies again, keeping the pins that still fit
	$(bin)/python -m scripts.lock

mutants: .venv/ready servers ## Break the code on purpose, and see that a test notices
	$(bin)/python -m tests.mutants.run

bugs: .venv/ready ## Plant bugs in copies of the sources, and see that the simulation finds each
	$(bin)/python -m tests.simulation.hunting

sim: .venv/ready ## Run the control plane in a simulation with faults: 2,000 seeds under all faults
	$(bin)/herdsman sim run --seeds 1..2000

soak: .venv/ready servers ## Run the long forms: 10,000 jobs under 50 kills on each database, and the like
	HERDSMAN_SOAK=1 $(bin)/pytest -s -p no:randomly tests/chaos tests/contract tests/api/test_schema.py tests/api/test_odd_values.py tests/simulation tests/unit

bench: .venv/ready servers ## Measure beside peers and floors; fail when a ratio fell by a third
	$(bin)/python -m bench $(BENCH)

clean: ## Remove what the commands above made
	rm -rf .venv .pytest_cache .ruff_cache .hypothesis .import_linter_cache .mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The longest first. What each says stands together, and all are heard before the first failure ends it.
static: .venv/ready
	@$(MAKE) --no-print-directory --output-sync=target --keep-going types format-check lint imports deps locked

# The first line compiles what all processes of the second load; that says what cannot be collected. Tests that kill
# programs run by themselves.
suite:
	-@$(bin)/pytest --collect-only -qqq >/dev/null
	$(bin)/pytest -n 4 --dist loadfile --no-loadscope-reorder --durations 15 --ignore tests/chaos
	$(bin)/pytest -n 4 --dist loadfile --no-loadscope-reorder --durations 15 tests/chaos

types:
	$(bin)/basedpyright
format-check:
	$(bin)/ruff format --check
lint:
	$(bin)/ruff check
imports:
	$(bin)/lint-imports --no-logo
deps:
	$(bin)/deptry .
locked:
	$(bin)/uv lock --check --quiet

servers: .venv/ready
	$(bin)/python -m scripts.ensure_servers

.venv/ready: .venv/bin/uv pyproject.toml uv.lock scripts/install_locked.py
	$(bin)/python -m scripts.install_locked
	touch $@

.venv/bin/uv: scripts/make_venv.py
	python="$$(scripts/find_python)" && "$$python" -m scripts.make_venv
	touch $@
