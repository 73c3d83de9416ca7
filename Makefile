# Each target makes its own virtual environment and installs what it needs.
#   make demo   the main job on the model that wavefit ships: a bundle, a table, a report
#   make test   lint, types, layers and every test
#   make docs   docs/cli.md, and the Python API from the docstrings as build/api/index.html
# On Windows, README.md gives the same two as plain lines.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test check docs clean

demo: $(VENV)/.demo
	$(BIN)/wavefit demo

test: check
	$(BIN)/python -m pytest

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cpu]'
	touch $@

$(VENV)/.test: $(VENV)/.demo
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group test --editable '.[cpu,torch,pocl,kernels,hip]' 'torch==2.13.0'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache demo.wavefit

API := wavefit wavefit.schema wavefit.errors wavefit.pipeline wavefit.routes.session wavefit.bundle wavefit.guard \
       wavefit.bench wavefit.plan wavefit.device wavefit.doctor

docs: $(VENV)/.test
	$(BIN)/python -m typer wavefit.cli utils docs --name wavefit --output docs/cli.md
	$(BIN)/python -m pdoc --docformat google --output-directory build/api $(API)
