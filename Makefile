# What a person types. Everything real is in CMakeLists.txt and tools/.
.DEFAULT_GOAL := help
.PHONY: help demo test quick bench lint format soak fuzz clean

PYTHON := .venv/bin/python
SEEDS ?= 1000
SATURATE_S ?= 600
SECONDS_EACH ?= 60

help: ## Show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 15

demo: ## See it work (a first build takes a few minutes)
	@tools/setup build
	@tools/demo

test: ## Run every test: release, sanitizers, Python
	@tools/setup build test
	@$(PYTHON) tools/test.py

quick: ## Run the fast tests only: release and Python
	@tools/setup build test
	@$(PYTHON) tools/test.py --quick

bench: ## Measure this project beside its peers (BENCH="name …" for some of them)
	@tools/setup build bench
	@$(PYTHON) bench/run.py $(BENCH)

lint: ## Check formatting, clang-tidy and ruff
	@tools/setup build lint
	@$(PYTHON) tools/lint.py

format: ## Rewrite the sources in the house format
	@tools/setup build lint
	@$(PYTHON) tools/lint.py --fix

soak: ## Run the fault scenarios over many seeds (SEEDS=1000), then saturate the cores
	@tools/setup build
	@tools/soak $(SEEDS)
	@PYTHONPATH=python TUTTI_SATURATE_S=$(SATURATE_S) $(PYTHON) -m pytest -q tests/saturation_test.py

fuzz: ## Run each fuzz target for a while (SECONDS_EACH=60)
	@tools/setup build fuzz
	@tools/fuzz $(SECONDS_EACH)

clean: ## Remove what was built; .venv and caches of downloads stay
	@rm -rf build dist python/tutti/_core*.so
