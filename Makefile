# `make` alone lists what there is. Everything runs in .venv, which the first target that needs it creates.

PYTHON ?= python3
VENV   ?= .venv
JOBS   ?= 2
BIN    := $(VENV)/bin
SUM    := $(shell cksum pyproject.toml | cut -d ' ' -f 1)
READY  := $(VENV)/.ready-$(SUM)
# The tools of the documentation are installed by `make docs` alone.
DOCS   := $(VENV)/.docs-$(SUM)
# The queues that the bench compares with are installed by `make bench`, and by `make test-slow`, which tries them.
BENCHED := $(VENV)/.bench-$(shell cksum bench/requirements.txt | cut -d ' ' -f 1)-$(SUM)

# The tests start hundreds of processes: the modules they import are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow test-soak mutants fuzz crash crash-long check docs bench clean venv

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(READY)  ## queue the lines of a real file, kill the workers at random, prove from the files that nothing is lost
	@$(BIN)/tidelog demo $(DEMO)

test: $(READY) oracle java shells services  ## all tests but the slow ones and those of `make check`: about six minutes on two cores
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q -m "not slow and not soak" --ignore=tests/test_user_code.py

test-slow: $(BENCHED) oracle java disks shells browser  ## all rounds of the tests that `make test` samples: about twenty minutes on two cores
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q -m slow

test-soak: $(READY) oracle java  ## random histories, faults and fuzzers with new seeds, for as long as they are worth: half an hour and more
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q -m soak --new-seeds

mutants: $(READY)  ## plant faults one by one, and see that the tests that promise to catch them do: about five minutes
	@$(BIN)/python -m tests.mutants --jobs $(JOBS) $(MUTANTS)

fuzz: $(READY)  ## change segments, records, checkpoints and files of Redis at random: half a minute; FUZZ="--coverage" shows the lines reached
	@$(BIN)/python -m tests.fuzz $(FUZZ)

crash: $(READY) disks  ## the crash bench with fixed seeds: a fifth of it by turns, about two minutes; fails if it finds anything, or tries less than before
	@$(BIN)/python -m tests.crash --jobs $(JOBS) $(CRASH)

crash-long: $(READY) disks  ## all shares of the crash bench with new seeds, which it prints, and all mutants: about half an hour; before a release
	@$(BIN)/python -m tests.crash --long --jobs $(JOBS) $(CRASH)
	@$(BIN)/python -m tests.mutants --jobs $(JOBS) $(MUTANTS)

check: $(READY)  ## lint, format, types, layers, docstrings and house rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_layout.py tests/test_imports.py tests/test_house_rules.py tests/test_docstrings.py tests/test_user_code.py

docs: $(DOCS)  ## the documentation as a site, in site/; fails for a link that leads nowhere
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(BENCHED) oracle java  ## every figure beside its baselines; AGAINST=../other-clone: beside that version; BENCH="--only queue"
	$(BIN)/python -m bench $(if $(AGAINST),--against $(AGAINST)) $(BENCH)

clean:  ## remove .venv, caches and build products
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

venv: $(READY)

# The name carries a checksum of pyproject.toml: a changed dependency makes a new install, not a stale one.
$(READY): pyproject.toml
	@.ci/prepare python "$(PYTHON)" "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,dev]'
	@rm -f $(VENV)/.ready-* && touch $@

$(DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@rm -f $(VENV)/.docs-* && touch $@

$(BENCHED): $(READY) bench/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r bench/requirements.txt
	@rm -f $(VENV)/.bench-* && touch $@

# The tests and the bench compare with a real Redis, run Spark, take the power of file systems, complete
# lines in bash and zsh, look at the console, and let systemd read a unit.
.PHONY: oracle java disks shells browser services
oracle java disks shells browser services:
	@.ci/prepare $@
