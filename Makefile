# Two commands for users: `make search` and `make test`. Each sets up .venv by itself.

SHAPE ?= 2048x2048x2048
# The first of these that is new enough; python3 alone may be older.
PYTHON ?= $(shell for each in python3 python3.14 python3.13 python3.12 python3.11; do \
	"$$each" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { command -v "$$each"; break; }; done)

bin := .venv/bin
pip := $(bin)/python -m pip install --quiet --disable-pip-version-check
export PATH := $(PATH):/usr/local/cuda/bin

.PHONY: search test lint unit gpu docs build clean

# Searches the GPU that is here, else predicts for a Turing one.
search: .venv/.search
	@if nvidia-smi -L >/dev/null 2>&1; then arch=native; else arch=75; fi; \
	echo "autotune search --arch $$arch --shape $(SHAPE)" >&2; \
	$(bin)/autotune search --arch $$arch --shape $(SHAPE)

test: lint unit gpu

lint: .venv/.test
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	$(bin)/lint-imports

unit: .venv/.test
	$(bin)/pytest -q -n auto -m "not alone" --ignore=tests/gpu tests
	$(bin)/pytest -q -m alone --ignore=tests/gpu tests

# One at a time: they time kernels. Skipped without a GPU; AUTOTUNE_REQUIRE_GPU=1 makes that fail.
gpu: .venv/.test
	$(bin)/pytest -q tests/gpu

docs: .venv/.test
	$(bin)/python docs/commands.py

build: .venv/.test
	rm -rf dist
	$(bin)/python -m build

clean:
	rm -rf .venv dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/.python:
	@test -n "$(PYTHON)" || { \
	echo "autotune needs Python 3.11 or later with venv and ensurepip (Debian: python3-venv);" >&2; \
	echo "python3 here is: $$(python3 --version 2>&1). Name another with make PYTHON=PATH" >&2; \
	exit 1; }
	"$(PYTHON)" -m venv .venv
	@touch $@

# Where a GPU and a toolkit are, pycuda is built; the search works without it.
.venv/.search: .venv/.python pyproject.toml
	$(pip) -e .
	@if nvidia-smi -L >/dev/null 2>&1; then \
	if ! command -v nvcc >/dev/null; then \
	echo "no nvcc here, so pycuda is not built: kernels are timed through cuda-bindings" >&2; \
	$(pip) 'nvidia-ml-py>=13.580' || true; \
	elif ! $(pip) -e '.[gpu]' >.venv/pycuda.log 2>&1; then \
	echo "pycuda does not build (.venv/pycuda.log): kernels are timed through cuda-bindings" >&2; \
	$(pip) 'nvidia-ml-py>=13.580' || true; \
	fi; fi
	@touch $@

.venv/.test: .venv/.python pyproject.toml
	$(pip) -e '.[test]'
	@touch $@
