# The course's commands. Python packages go into .venv; as root, `make test` installs Debian's chromium
# and bubblewrap if they are missing.
PYTHON ?= python3
unexport PYTHONDONTWRITEBYTECODE # hundreds of processes in the tests would each compile the package anew
BIN := .venv/bin

.PHONY: help lab test lint types run named notebooks site slides handouts bench colab system full clean

help:
	@echo "make lab               open JupyterLab at the first lecture, with LECTURE=02 at that one"
	@echo "make test              run the tests, with ONLY=03 those of what lecture 03 uses, with ALL=1 the slow ones too"
	@echo "make types             check the types in the widgets' scripts, with node"
	@echo "make run LECTURE=02    execute one lecture, without a browser"
	@echo "make notebooks         execute all lectures"
	@echo "make site              build the executed lectures as a web site"
	@echo "make slides LECTURE=02 one executed lecture as slides"
	@echo "make handouts          the executed lectures as PDFs"
	@echo "make bench             measure speed, as ratios"
	@echo "make colab             install beside Colab's versions, which must not change"
	@echo "make full              everything else that can be checked: hours"
	@echo "make clean             remove build/ and dist/"

lab: .venv/lab
	$(BIN)/coursekit lab $(LECTURE)

test: .venv/test system lint
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(if $(ONLY),-p tests.only --lecture $(ONLY)) $(if $(ALL),,-m "not slow")

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Of the widgets' scripts, by their comments; needs node.
types:
	npx --yes --package typescript@5.9.3 tsc --project .

run: named .venv/lab
	$(BIN)/coursekit run $(LECTURE)

named:
	@test -n "$(LECTURE)" || { echo "say which: make $(firstword $(MAKECMDGOALS)) LECTURE=02"; exit 2; }

notebooks: .venv/lab
	$(BIN)/coursekit run --all --jobs 2

site: .venv/site
	$(BIN)/coursekit site

slides: named .venv/site
	$(BIN)/coursekit slides $(LECTURE)

handouts: .venv/site
	$(BIN)/coursekit handout $(patsubst notebooks/%.ipynb,%,$(wildcard notebooks/*.ipynb))

bench: .venv/test
	$(BIN)/python -m tests.bench

colab: .venv/test
	$(BIN)/python -m tests.colab

full: .venv/full system
	$(BIN)/python -m tests.full

clean:
	rm -rf build dist

# The stamps say which extras are installed; a changed pyproject.toml or constraints.txt installs again.
.venv/lab: pyproject.toml constraints.txt
	test -x $(BIN)/python || { echo "Installing into .venv: some minutes, once"; $(PYTHON) -m venv .venv; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[lab]'
	touch $@

.venv/site: .venv/lab
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[site]'
	touch $@

.venv/test: .venv/lab
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@ .venv/site # the tests need it too

.venv/full: .venv/test
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[full]'
	touch $@

# The browser tests drive Debian's chromium, in its lighter shell where there is one; marking runs in bubblewrap. Without
# them, and without leave to install them, their tests are skipped.
system:
	@command -v chromium >/dev/null && command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && \
	  apt-get install -y -qq --no-install-recommends bubblewrap chromium fonts-dejavu-core fonts-noto-core >/dev/null && \
	  { apt-get install -y -qq --no-install-recommends chromium-headless-shell >/dev/null || true; }; } \
	  || echo "chromium or bubblewrap is missing: their tests will be skipped (Debian: apt-get install chromium bubblewrap)"
