#!/usr/bin/env bash
# What lnexp does on a CUDA device, in at most 8 minutes: tokens/s beside stock fairseq-train, loss curve beside the CPU's,
# peak memory, waits for the GPU within an update. One Markdown page; outputs/gpu_check/gpu_check.json and .md.
# Not run on a GPU yet: written and tested (on a CPU, --device cpu) where there is none.
# Needs .venv with a CUDA build of torch: `make gpu-check` makes .venv, and PyPI's torch for Linux is a CUDA build.
# Exit codes: 0 done, 1 a run failed or the time was up, 2 something is missing or was wrong.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
if [ ! -x .venv/bin/python ]; then
  echo "gpu_check: no .venv/bin/python: run \`make venv\` (or \`make gpu-check\`) first" >&2
  exit 2
fi
timeout --foreground 480 .venv/bin/python scripts/gpu_check.py "$@"
code=$?
if [ "$code" -eq 124 ]; then
  echo "gpu_check: 8 minutes were not enough; what was measured until then is in outputs/gpu_check (--rounds 1 takes less)" >&2
  exit 1
fi
exit "$code"
