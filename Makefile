# The course's commands. Python packages go into .venv; as root, `make test` installs Debian's chromium if it is missing.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help lab test lint run notebooks bench chromium clean

help:
	@echo "make lab               open JupyterLab at the first lecture"
	@echo "make test              run the tests"
	@echo "make run LECTURE=02    execute one lecture, without a browser"
	@echo "make notebooks         execute all lectures"
	@echo "make bench             measure speed, as ratios"
	@echo "make clean             remove build/ and dist/"

lab: .venv/lab
	$(BIN)/coursekit lab

test: .venv/test chromium lint
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: .venv/test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

run: .venv/lab
	@test -n "$(LECTURE)" || { echo "say which: make run LECTURE=02"; exit 2; }
	$(BIN)/coursekit run $(LECTURE)

notebooks: .venv/lab
	$(BIN)/coursekit run --all --jobs 2

bench: .venv/test
	$(BIN)/python -m tests.bench

clean:
	rm -rf build dist

# The stamps say which extras are installed; a changed pyproject.toml or constraints.txt installs again.
.venv/lab: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[lab]'
	touch $@

.venv/test: .venv/lab
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

# The browser tests drive Debian's chromium; without it, and without leave to install it, they are skipped.
chromium:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core fonts-noto-core >/dev/null; } \
	  || echo "no chromium here: the browser tests will be skipped (Debian: apt-get install chromium)"
