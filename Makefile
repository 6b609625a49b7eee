# `make` alone lists what there is. Everything runs in .venv, which the first target that needs it creates.

PYTHON ?= python3
VENV   ?= .venv
# Tests wait for disks, sockets and processes half of the time: one more process than there are processors.
JOBS   ?= $(shell expr $$(nproc) + 1)
BIN    := $(VENV)/bin
# Of the seconds in the table of durations. On two slow cores 1,370 of them took 800 s, of which 35 s are the collection.
SLOW_SECONDS ?= 450
TESTS   = $(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -q
# Tests of rules, which `make check` runs and `make test` does not.
RULES   = tests/test_layout.py tests/test_imports.py tests/test_house_rules.py tests/test_docstrings.py tests/test_user_code.py
SUM    := $(shell cksum pyproject.toml | cut -d ' ' -f 1)
READY  := $(VENV)/.ready-$(SUM)
# The tools of the documentation are installed by `make docs` alone.
DOCS   := $(VENV)/.docs-$(SUM)
# The demo has what `pip install .` installs, and nothing else.
DEMO_VENV  ?= .venv-demo
DEMO_READY := $(DEMO_VENV)/.ready-$(SUM)
# The queues that the bench compares with are installed by `make bench`, and for the slow tests, which try them.
BENCHED := $(VENV)/.bench-$(shell cksum bench/requirements.txt | cut -d ' ' -f 1)-$(SUM)

# The tests start hundreds of processes: the modules they import are compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test costly test-slow test-slow-all durations test-soak unsteady mutants fuzz crash crash-long check generate options \
        pictures docs bench clean venv ready

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

demo: $(DEMO_READY)  ## queue the lines of a real file, kill the workers at random, prove from the files that nothing is lost
	@$(DEMO_VENV)/bin/tidelog demo $(DEMO)

test: $(READY) oracle java shells services  ## all tests but the slow ones and those of `make check`
	$(TESTS) -m "not slow and not soak" $(RULES:%=--ignore=%) $(PYTEST)

costly: $(READY) oracle java shells services  ## as `make test`, and what takes long in it has turns with the slow tests from now on
	$(MAKE) test PYTEST="--junitxml .gate/test.xml"
	@$(BIN)/python -m tests.gate.costly .gate/test.xml

test-slow: $(BENCHED) oracle java disks shells browser  ## of the rounds that `make test` samples, those whose turn it is: five and a half minutes on two cores
	$(TESTS) -m slow --slow-seconds $(SLOW_SECONDS) $(PYTEST)

test-slow-all: $(BENCHED) oracle java disks shells browser  ## all rounds of the tests that `make test` samples: about forty minutes on two cores
	$(TESTS) -m slow $(PYTEST)

durations: $(BENCHED) oracle java disks shells browser  ## run all slow tests, and write down how long each takes: tests/gate/durations.json
	$(TESTS) -m slow --junitxml .gate/slow.xml $(PYTEST)
	@$(BIN)/python -m tests.gate.durations .gate/slow.xml

test-soak: $(READY) oracle java  ## random histories, faults and fuzzers with new seeds, for as long as they are worth: half an hour and more
	$(TESTS) -m soak --new-seeds $(PYTEST)

unsteady: $(READY)  ## list the tests that failed once and passed alone in tests/UNSTEADY.md
	@$(BIN)/python -m tests.gate.unsteady

mutants: $(READY)  ## plant faults one by one, and see that the tests that promise to catch them do: about five minutes
	@$(BIN)/python -m tests.mutants --jobs $(JOBS) $(MUTANTS)

fuzz: $(READY)  ## change segments, records, checkpoints and files of Redis at random: half a minute; FUZZ="--coverage" shows the lines reached
	@$(BIN)/python -m tests.fuzz $(FUZZ)

crash: $(READY) disks  ## the crash bench with fixed seeds: a thirtieth of it by turns, at most two minutes; fails if it finds anything, or tries less than before
	@$(BIN)/python -m tests.crash --jobs $(JOBS) $(CRASH)

crash-long: $(READY) disks  ## all shares of the crash bench with new seeds, which it prints, and all mutants: about half an hour; before a release
	@$(BIN)/python -m tests.crash --long --jobs $(JOBS) $(CRASH)
	@$(BIN)/python -m tests.mutants --jobs $(JOBS) $(MUTANTS)

check: lint types rules  ## lint, format, types, layers, docstrings and house rules; all at once with `make -j3 check`

.PHONY: lint types rules
lint: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy

rules: $(READY)
	$(BIN)/python -m pytest -q $(RULES)

generate: options  ## write all generated code and tables anew, after a change of what they are made from
	$(BIN)/python tools/dev/make_faces.py
	$(BIN)/python tools/dev/make_sync.py
	$(BIN)/python tools/dev/make_threaded.py

options: $(READY)  ## write the tables of docs/reference/server-options.md, a part of `make generate`
	$(BIN)/python tools/dev/make_options.py

pictures: $(READY) java browser  ## draw the pictures of the guides anew: logs, top, reports and the console
	$(BIN)/python tools/dev/make_reading_pictures.py
	$(BIN)/python tools/dev/make_report_pictures.py
	$(BIN)/python -m tests.server.console.pictures

docs: $(DOCS)  ## the documentation as a site, in site/; fails for a link that leads nowhere
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(BENCHED) oracle java  ## every figure beside its baselines; AGAINST=../other-clone: beside that version; BENCH="--only queue"
	$(BIN)/python -m bench $(if $(AGAINST),--against $(AGAINST)) $(BENCH)

clean:  ## remove .venv, caches and build products
	rm -rf $(VENV) $(DEMO_VENV) .gate build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

venv: $(READY)

ready: $(READY) $(BENCHED) $(DOCS) $(DEMO_READY) oracle java disks shells browser services  ## install all that the other targets need

# The name carries a checksum of pyproject.toml: a changed dependency makes a new install, not a stale one.
$(READY): pyproject.toml
	@.ci/prepare python "$(PYTHON)" "$(VENV)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,dev]'
	@rm -f $(VENV)/.ready-* && touch $@

$(DEMO_READY): pyproject.toml
	@.ci/prepare python "$(PYTHON)" "$(DEMO_VENV)"
	@$(DEMO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e .
	@rm -f $(DEMO_VENV)/.ready-* && touch $@

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
