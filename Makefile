PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STUDY := examples/llama2-7b-16xh100.yaml
# Any build will do, on a CPU too; the range keeps pip from taking a newer one of several gigabytes where this one is at hand.
TORCH ?= torch>=2.9,<2.14

.PHONY: tune serve test lint lock clean

tune: $(VENV)/installed
	$(BIN)/paretune tune $(STUDY)

serve: $(VENV)/installed
	$(BIN)/paretune serve $(STUDY)

test: $(VENV)/installed-dev
	sh tests/system_packages.sh
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --durations=15

lint: $(VENV)/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Versions that were tested together; `pip install .` works without them.
lock: $(VENV)/installed-dev
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-emit-find-links \
		--no-annotate --no-header --extra postgres --extra dev --output-file requirements.lock pyproject.toml

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Paretune needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml requirements.lock | $(BIN)/python
	$(BIN)/pip install --quiet --constraint requirements.lock --editable .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/pip install --quiet '$(TORCH)'
	$(BIN)/pip install --quiet --constraint requirements.lock --editable '.[postgres,dev]'
	touch $@

clean:
	rm -rf $(VENV)
