# enginetop: every task of the project. `make run` and `make test` are all that a newcomer needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: run test verify test-gpu test-vllm test-sglang test-dynamo test-k8s setup lint types imports unit bench docs screens lock audit format clean

run: $(READY)            ## the UI on the embedded demo fleet (a table when there is no terminal)
	@$(BIN)/enginetop demo

test: lint types imports unit  ## everything that CI runs

setup: $(READY)

$(READY): requirements/ci.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/ci.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(READY)

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

unit: $(READY)           # a worker more than cores: many tests wait for processes and sockets
	$(BIN)/python -m pytest -q -n $$(( 1 + $$(nproc) )) --dist worksteal

verify: $(READY)         ## long suites: fuzz, statistics, soak
	$(BIN)/python -m pytest -q -m verify

test-gpu: $(READY)       ## the read-only NVML part on a real GPU
	$(BIN)/python -m pytest -q -m gpu -rs

test-vllm: $(READY)      ## a real vLLM on the CPU, installed by itself: about 4 GB of disk, 8 minutes
	$(BIN)/python -m pytest -q -m vllm -rs -s tests/vllm

test-sglang: $(READY)    ## a real SGLang on the CPU, installed by itself: about 3 GB of disk, 12 minutes
	$(BIN)/python -m pytest -q -m sglang -rs -s tests/sglang

test-k8s: $(READY)       ## a real kube-apiserver, built from Debian's source package: root, 3 GB of disk, 10 minutes
	$(BIN)/python -m pytest -q -m kubernetes -rs tests/kubernetes

test-dynamo: $(READY)    ## NVIDIA Dynamo's own mocker, and a worker of ours, installed by itself: about 0.6 GB of disk, 5 minutes
	$(BIN)/python -m pytest -q -m dynamo -rs -s tests/dynamo

bench: $(READY)          ## our figures and those of others, in one run and one table: about 15 minutes
	$(BIN)/python -m bench

docs: $(READY)           ## write the documents anew that are made from tables and from the parser
	$(BIN)/python -m enginetop.docs_tables docs/engines.md
	$(BIN)/python -m enginetop.docs_signals docs/signals.md
	cp enginetop/alerts/runbook.md docs/runbook.md
	$(BIN)/python -m enginetop.docs_man docs/man/enginetop.1
	$(BIN)/python -m tui.docs_keys docs/keys.md

screens: $(READY)        ## write docs/screens anew: every view from a recorded simulated fleet
	$(BIN)/python -m bench.gallery docs/screens

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header

lock:                    ## write requirements/*.txt anew (needs uv)
	$(COMPILE) --group dev pyproject.toml -o requirements/ci.txt
	$(COMPILE) -c requirements/ci.txt pyproject.toml -o requirements/run.txt

audit:                   ## hold what enginetop runs on against published advisories (needs pip-audit and a network)
	pip-audit --require-hashes --disable-pip -r requirements/run.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
