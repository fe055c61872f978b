# Two commands set everything up on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt

CORES  := $(shell nproc 2>/dev/null || echo 2)

.PHONY: demo test test-slow lint types bench browser clean

demo: $(VENV)/.core
	$(BIN)/normscope demo

test: $(VENV)/.dev browser lint types
	$(BIN)/python -m pytest -n $(CORES)

test-slow: $(VENV)/.dev browser
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

# The report's test drives a real browser; where none can be installed it is skipped with a word.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	  echo "no Chromium: the report's browser test will be skipped"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone: its pin must be settled before anything else asks for a range of it.
$(VENV)/.core: pyproject.toml setup.py constraints.txt src/normscope/weights/sums/_kernel.c src/normscope/weights/sums/_lanes.h | $(BIN)/python
	$(PIP) torch==2.13.0
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -e '.[all,dev]'
	@touch $@

clean:
	rm -rf $(VENV) build src/*.egg-info src/normscope/weights/sums/*.so
