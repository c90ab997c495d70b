#!/usr/bin/env bash
# The paper's WMT14 En-De results from nothing to table and figure: Section 4, Figure 4, 3 seeds, 12 runs.
#   scripts/reproduce_wmt14.sh              at the paper's settings, on GPUs
#   SCALE=cpu scripts/reproduce_wmt14.sh    the same sweep on shipped text at a size for two CPU cores
# Further words go to prepare and train: data.local=DIR (the archives, already there), track=none, devices.processes=8
# (GPUs of one run; 1 by default, each update then 16 passes of 8,192 tokens one after the other), hydra/launcher=...
# Typed again it trains only what is missing. It ends with 1 where a run failed; diverged is a result.
# Estimates, none of it run by us: a run is 15 epochs of 1,100 to 1,200 updates of 131,072 tokens, 6 to 25 hours on one
# recent data-centre GPU, all twelve 70 to 300 GPU-hours; at SCALE=cpu half an hour on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/lnexp ] || make venv
scale=${SCALE:-paper}
suffix=$([ "$scale" = paper ] || echo "-$scale")

.venv/bin/lnexp prepare sweep=fig4_wmt scale="$scale" "$@"
.venv/bin/lnexp train sweep=fig4_wmt scale="$scale" seed=1,2,3 "$@"
for format in csv latex json md; do
  .venv/bin/lnexp table "fig4_wmt$suffix" --format "$format"
done
.venv/bin/lnexp figure "fig4_wmt$suffix"
.venv/bin/lnexp dashboard "fig4_wmt$suffix"
