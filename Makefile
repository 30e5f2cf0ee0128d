# make demo   train and evaluate three small models on real images, write a table and pictures (one: TASK=detection);
#             TASK=pretrained shows what plugs and tools do with a trained ViT, whose weights it downloads (90 MB)
# make test   lint and run the unit tests; make test-integration runs trainings and commands, make test-all every test,
#             make test-huggingface those that need transformers
# make bench  measure the cost of every plug (half an hour or more, needs an idle machine)
# Each target sets up $(VENV) first and skips finished steps; make setup alone installs what training needs.
# make setup OPS=compiled   compile mmcv's ops, too (some ten minutes, needs a C++ compiler): see docs/stacks.md
# make docs   build the documentation into site/ (a minute; without torch); make docs-serve shows it

VENV   ?= .venv
PYTHON ?= python3

PY       := $(VENV)/bin/python
PIP      := $(PY) -m pip install --disable-pip-version-check -c requirements/tested.txt
DONE     := $(VENV)/.vitplug
# torchvision: mmcv without compiled ops, unless they were compiled before; vitplug/ops.py runs those of the three tasks.
OPS      ?= torchvision
WORK_DIR ?= work_dirs/demo
TASKS    := classification segmentation detection
# Known once they have been downloaded; make demo then ends with them.
WEIGHTS  := checkpoints/dinov2-s-focus.pth
TASK     ?= $(TASKS) $(if $(wildcard $(WEIGHTS)),pretrained)

ifeq ($(filter $(OPS),torchvision compiled),)
$(error OPS=$(OPS): choose torchvision or compiled)
endif
# Said before the long steps of the set-up.
ifneq ($(filter-out $(TASKS) pretrained,$(TASK)),)
$(error TASK=$(TASK): choose of $(TASKS) pretrained)
endif

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test test-integration test-all test-huggingface bench lint format docs docs-serve

help:
	@sed -n '/^#/!q;s/^# //p' Makefile

# --- set-up: one stamp per finished step, so that an interrupted set-up resumes at the next step ---

setup: $(DONE)/checked

$(DONE)/venv:
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 12) else \
	  "vitplug needs Python 3.10 to 3.12, but $(PYTHON) is %d.%d: run make setup PYTHON=python3.11" % v)'
	$(PYTHON) -m venv --clear $(VENV)
	@mkdir -p $(DONE) && touch $@

$(DONE)/torch: $(DONE)/venv requirements/tested.txt
	@echo "--- torch and torchvision: several GB"
	$(PIP) torch torchvision
	@touch $@

# Built in isolation, where there is no torch, mmcv leaves its ops out. pip's cache may hold an mmcv with ops for another
# torch; hence no cache.
$(DONE)/mmcv: $(DONE)/torch
	@echo "--- mmcv, without compiled ops"
	$(PIP) --no-deps --no-cache-dir onedl-mmcv
	@touch $@

$(DONE)/vitplug: $(DONE)/mmcv setup.py
	@echo "--- mmdet, mmseg, mmpretrain and vitplug"
	$(PIP) -e .
	@touch $@

# Without isolation the build finds torch. pip's cache does not record the torch that mmcv was compiled for: one cache
# per torch. CFLAGS are Python's own without -g: debug symbols take more than half of the compile time.
CFLAGS ?= -DNDEBUG -fwrapv -O3 -Wall
TORCH  := $(PY) -c 'from importlib.metadata import version; print(version("torch"))'

$(DONE)/compiled: $(DONE)/vitplug
	@command -v $(or $(CXX),c++) >/dev/null || { \
	  echo "no C++ compiler found: install g++ or clang++, or run make setup, which compiles nothing"; exit 1; }
	@echo "--- mmcv with compiled ops: some ten minutes the first time, later from pip's cache"
	$(PIP) 'setuptools>=80,<82' wheel ninja psutil
	cache=$$($(PY) -m pip cache dir 2>/dev/null) || cache=; torch=$$($(TORCH)); \
	  CFLAGS="$(CFLAGS)" $(PIP) --no-build-isolation --no-deps --force-reinstall -v \
	  $${cache:+--cache-dir "$$cache/torch-$$torch"} onedl-mmcv
	@$(PY) -c 'import sys, torch, mmcv._ext as ops; sys.exit(ops.__file__.endswith("ops.py"))'
	@touch $@

$(DONE)/checked: $(DONE)/vitplug $(if $(filter compiled,$(OPS)),$(DONE)/compiled)
	@$(PY) -m vitplug doctor
	@touch $@

# What the tests need beside the set-up.
$(DONE)/test: $(DONE)/checked
	$(PIP) -e '.[test]'
	@touch $@

# --- targets that need the set-up ---

# What the weights of an ONNX file and the photographs need beside the set-up.
$(DONE)/pretrained: $(DONE)/checked
	$(PIP) onnx scikit-image
	@touch $@

demo: setup $(if $(filter pretrained,$(TASK)),$(DONE)/pretrained)
ifneq ($(filter $(TASKS),$(TASK)),)
	@$(PY) tools/demo.py --task $(filter $(TASKS),$(TASK)) --work-dir "$(WORK_DIR)"
endif
ifneq ($(filter pretrained,$(TASK)),)
	@$(PY) tools/pretrained_demo.py --work-dir "$(WORK_DIR)" $(if $(CAMVID),--camvid "$(CAMVID)")
endif

PYTEST := $(PY) -m pytest -n auto --dist worksteal

test: lint
	@$(PYTEST) --quick -m 'not integration'

test-integration: $(DONE)/test
	@$(PYTEST) --quick -m integration

test-all: lint
	@$(PYTEST)

# mmpretrain cannot be imported beside transformers 5, so that lies in a folder of its own.
HUGGINGFACE := $(VENV)/huggingface

$(DONE)/huggingface: $(DONE)/test requirements/huggingface.txt
	$(PY) -m pip install --disable-pip-version-check --no-deps --upgrade --target $(HUGGINGFACE) \
	  -r requirements/huggingface.txt
	@touch $@

test-huggingface: $(DONE)/huggingface
	@VITPLUG_TRANSFORMERS="$(abspath $(HUGGINGFACE))" $(PY) -m pytest --quick tests/checkpoints/test_foundation.py
	@PYTHONPATH="$(abspath $(HUGGINGFACE))" $(PY) -m pytest --quick tests/adapters/test_hugging_face.py \
	  tests/adapters/test_models.py tests/adapters/test_page.py tests/lab/test_text.py

bench: $(DONE)/test
	@$(PY) tools/analysis_tools/benchmark.py $(BENCH)

lint: $(DONE)/test
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy

format: $(DONE)/test
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
