# make demo, make test, make check, make bench: each makes .venv first where it is missing.
PYTHON ?= python3
# Passed to pip; without a GPU, PyTorch's CPU index saves gigabytes: make venv PIP_ARGS="--extra-index-url ..."
PIP_ARGS ?=
# Passed to the benchmark, as BENCH_ARGS="--size demo --tokens 500 --rounds 3".
BENCH_ARGS ?=
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test check golden bench bench-decode bench-growth gpu-check venv lint types slurm ray test-slow test-slurm test-ray \
	browser test-browser screenshot clean

demo: $(READY)
	@$(BIN)/lnexp train sweep=demo
	@$(BIN)/lnexp table demo
	@$(BIN)/lnexp dashboard demo
	@echo 'W&B: recorded in outputs/demo/*/wandb where no key is configured (to send it: .venv/bin/lnexp sync demo)'

test: $(READY)
	$(BIN)/python -m pytest

# A run killed 20 times and such: minutes, on a machine that does nothing else.
test-slow: $(READY)
	$(BIN)/python -m pytest -m slow --timeout 0

# Launchers for several machines, beside what .venv has; `make test` skips their tests where they are not there.
slurm: .venv/.slurm
ray: .venv/.ray
test-slurm: slurm
	$(BIN)/python -m pytest -m slurm
test-ray: ray
	$(BIN)/python -m pytest -m ray

.venv/.slurm .venv/.ray .venv/.browser: .venv/.%: requirements-%.lock $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_ARGS) --no-deps -r $<
	@touch $@

# The dashboard in a real browser, and the README's picture of one. Chromium and its driver are the system's.
browser: .venv/.browser
	@$(BIN)/python scripts/chromium.py
test-browser: browser
	$(BIN)/python -m pytest -m browser --timeout 0 tests/browser
SWEEP ?= outputs/demo
screenshot: browser
	$(BIN)/python scripts/screenshot.py $(SWEEP) docs/dashboard.png $(VIEW)

check: lint types test

lint: $(READY)
	$(BIN)/ruff check lnexp tests scripts
	$(BIN)/ruff format --check lnexp tests scripts

types: $(READY)
	$(BIN)/mypy

golden: $(READY)
	UPDATE_GOLDEN=1 $(BIN)/python -m pytest tests/golden

bench: $(READY)
	$(BIN)/python scripts/bench.py $(BENCH_ARGS)

# A run folder with checkpoints/best.pt: make bench-decode RUN=outputs/demo/...
bench-decode: $(READY)
	@test -n "$(RUN)" || { echo "bench-decode: need RUN=<run folder with checkpoints/best.pt>" >&2; exit 2; }
	$(BIN)/python scripts/bench_decode.py "$(RUN)" $(BENCH_ARGS)

bench-growth: $(READY)
	$(BIN)/python scripts/bench_growth.py $(BENCH_ARGS)

gpu-check: $(READY)
	scripts/gpu_check.sh $(BENCH_ARGS)

venv: $(READY)

$(READY): requirements.lock requirements-fairseq.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v in ((3, 11), (3, 12)) else \
	  "lnexp needs Python 3.11 or 3.12 (fairseq has wheels for these), this is %d.%d: make PYTHON=python3.11 ..." % v)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_ARGS) -r requirements.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check $(PIP_ARGS) --no-deps --require-hashes -r requirements-fairseq.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache
