# make demo   train and evaluate three small models on real images, write a table and pictures (one: TASK=detection)
# make test   lint and run the unit tests; make test-integration runs trainings and commands, make test-all every test,
#             make test-huggingface those that need transformers
# make bench  measure the cost of every plug (half an hour or more, needs an idle machine)
# Each target sets up $(VENV) first and skips finished steps.
# make docs   build the documentation into site/ (a minute; without torch); make docs-serve shows it
# STACK=openmmlab or STACK=openmmlab-new uses upstream's packages, in .venv-STACK: see docs/stacks.md

STACKS := onedl openmmlab openmmlab-new
STACK  ?= onedl
VENV   ?= $(if $(filter onedl,$(STACK)),.venv,.venv-$(STACK))
PYTHON ?= python3

PY          := $(VENV)/bin/python
PIP         := $(PY) -m pip install --disable-pip-version-check --progress-bar off -c requirements/$(STACK).txt
DONE        := $(VENV)/.vitplug
# STEP TITLE LOG COMMAND: the output goes to the file LOG, the progress and time to the terminal.
STEP        := $(PY) -m vitplug.setup_step
LOGS        := work_dirs/setup/$(notdir $(VENV))
WORK_DIR    ?= work_dirs/demo
TASK        := classification,segmentation,detection

# The stack's extra in setup.py, its distribution of mmcv, and the last minor version of Python with wheels of its torch.
EXTRA       := $(STACK:-new=)
MMCV        := $(if $(filter onedl,$(EXTRA)),onedl-mmcv,mmcv)
LAST_PYTHON := $(if $(filter onedl,$(EXTRA)),12,11)
MMCV_OPS_OK := $(PY) -c 'import mmcv.ops' >/dev/null 2>&1

ifeq ($(filter $(STACK),$(STACKS)),)
$(error STACK=$(STACK): choose one of $(STACKS))
endif
# $(DONE)/venv has the name of the stack; an older, empty one means onedl.
HELD := $(if $(wildcard $(DONE)/venv),$(or $(shell cat $(DONE)/venv),onedl))
ifneq ($(filter-out $(STACK),$(HELD)),)
$(error $(VENV) holds the stack $(HELD), not $(STACK): choose another VENV, or remove this one)
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo demo-tasks test test-integration test-all test-huggingface bench lint format docs docs-serve

help:
	@sed -n '/^#/!q;s/^# //p' Makefile

# --- set-up: one stamp per finished step, so that an interrupted set-up resumes at the next step ---

setup: $(DONE)/checked

$(DONE)/venv:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, $(LAST_PYTHON)) else \
	  "the stack $(STACK) needs Python 3.10 to 3.$(LAST_PYTHON), but $(PYTHON) is %d.%d: run make PYTHON=python3.11" % v)'
	@[ -n "$(MMCV_WHEELS)" ] || command -v $(or $(CXX),c++) >/dev/null || { \
	  echo "no C++ compiler found, but mmcv's ops must be compiled: install one (g++ or clang++), then run make again"; exit 1; }
	@$(PYTHON) -m vitplug.setup_step "[1/5] virtual environment $(VENV)" $(LOGS)/venv.log $(PYTHON) -m venv --clear $(VENV)
	@mkdir -p $(DONE) && echo $(STACK) > $@

$(DONE)/torch: $(DONE)/venv requirements/$(STACK).txt
	@$(STEP) "[2/5] torch and torchvision (several GB, a few minutes)" $(LOGS)/torch.log \
	  $(PIP) torch torchvision setuptools wheel ninja psutil
	@touch $@

# No build isolation: if mmcv's build finds no torch, it silently leaves the ops out.
# pip's cache does not record the torch that mmcv was compiled for. Hence one cache per torch,
# the check, and the second build without a cache.
# CFLAGS are Python's own without -g: debug symbols take more than half of the compile time.
CFLAGS      ?= -DNDEBUG -fwrapv -O3 -Wall
MMCV_BUILD  := env CFLAGS="$(CFLAGS)" $(PIP) --no-build-isolation
TORCH       := $(PY) -c 'from importlib.metadata import version; print(version("torch"))'

ifdef MMCV_WHEELS
$(DONE)/mmcv: $(DONE)/torch
	@$(STEP) "[3/5] mmcv with compiled ops from $(MMCV_WHEELS)" $(LOGS)/mmcv.log \
	  $(PIP) --find-links $(MMCV_WHEELS) --only-binary $(MMCV) --no-cache-dir $(MMCV)
	@$(MMCV_OPS_OK) || { \
	  echo "the mmcv of $(MMCV_WHEELS) does not load with this torch: name other wheels, or none to build it"; exit 1; }
	@touch $@
else
$(DONE)/mmcv: $(DONE)/torch
	@wheels=$$($(PY) -m vitplug.doctor --wheels); [ -z "$$wheels" ] || \
	  echo "      prebuilt wheels exist; to use them: make setup STACK=$(STACK) MMCV_WHEELS=$$wheels"
	@cache=$$($(PY) -m pip cache dir 2>/dev/null) || cache=; torch=$$($(TORCH)); \
	  $(STEP) "[3/5] mmcv with compiled ops (about ten minutes the first time, later from pip's cache)" $(LOGS)/mmcv.log \
	  $(MMCV_BUILD) -v $${cache:+--cache-dir "$$cache/torch-$$torch"} $(MMCV)
	@$(MMCV_OPS_OK) || \
	  $(STEP) "      the cached mmcv does not load with this torch: building it again" $(LOGS)/mmcv_again.log \
	  $(MMCV_BUILD) -v --no-cache-dir --no-deps --force-reinstall $(MMCV)
	@touch $@
endif

$(DONE)/vitplug: $(DONE)/mmcv setup.py
	@$(STEP) "[4/5] mmdet, mmseg, mmpretrain and vitplug" $(LOGS)/vitplug.log \
	  $(PIP) --no-build-isolation -e '.[$(EXTRA),test]'
	@touch $@

$(DONE)/checked: $(DONE)/vitplug
	@$(STEP) "[5/5] checking the installation" $(LOGS)/doctor.log $(PY) -m vitplug.doctor
	@touch $@

# --- targets that need the set-up ---

demo: demo-tasks setup
	@$(PY) tools/demo.py --task '$(TASK)' --work-dir $(WORK_DIR)

# Refuses a misspelt task before the long steps of the set-up.
demo-tasks: $(DONE)/venv
	@PYTHONPATH=. $(PY) tools/demo.py --task '$(TASK)' --dry-run

PYTEST := $(PY) -m pytest -n auto --dist worksteal

test: setup lint
	@$(PYTEST) --quick -m 'not integration'

test-integration: setup
	@$(PYTEST) --quick -m integration

test-all: setup lint
	@$(PYTEST)

# mmpretrain cannot be imported beside transformers 5, so that lies in a folder of its own.
HUGGINGFACE := $(VENV)/huggingface

$(DONE)/huggingface: $(DONE)/vitplug requirements/huggingface.txt
	@$(STEP) "      transformers, for tests of Hugging Face's models" $(LOGS)/huggingface.log $(PY) -m pip install \
	  --disable-pip-version-check --no-deps --upgrade --target $(HUGGINGFACE) -r requirements/huggingface.txt
	@touch $@

test-huggingface: $(DONE)/huggingface
	@VITPLUG_TRANSFORMERS=$(abspath $(HUGGINGFACE)) $(PY) -m pytest --quick tests/checkpoints/test_foundation.py
	@PYTHONPATH=$(abspath $(HUGGINGFACE)) $(PY) -m pytest --quick tests/adapters/test_hugging_face.py tests/text

bench: setup
	@$(PY) tools/analysis_tools/benchmark.py $(BENCH)

lint: setup
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

format: setup
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

# --- documentation: read from the source, in its own small virtual environment ---

DOCS_VENV ?= .venv-docs

$(DOCS_VENV)/done: requirements/docs.txt
	@$(PYTHON) -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --disable-pip-version-check --progress-bar off -q -r requirements/docs.txt
	@touch $@

docs: $(DOCS_VENV)/done
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict --clean
	@echo "built in site/; make docs-serve shows it in a browser"

docs-serve: $(DOCS_VENV)/done
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs serve --strict
