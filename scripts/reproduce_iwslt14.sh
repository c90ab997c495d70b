#!/usr/bin/env bash
# The paper's IWSLT14 De-En results from nothing to tables and figures: Figure 2, Figure 4, Appendix H, 3 seeds, 66 runs.
#   scripts/reproduce_iwslt14.sh              at the paper's settings, on a GPU
#   SCALE=cpu scripts/reproduce_iwslt14.sh    the same sweeps on shipped text at a size for two CPU cores
# Further words go to prepare and train: data.local=DIR (the archive, already there), track=none, hydra/launcher=...
# Typed again it trains only what is missing. It ends at the first sweep of which a run failed; diverged is a result.
# Estimates, none of it run by us: 50 to 110 hours on one recent data-centre GPU (0.7 to 1.5 a run of 15 epochs), less
# by the number of GPUs where a launcher shares the runs; at SCALE=cpu 2 to 3 hours on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x .venv/bin/lnexp ] || make venv
scale=${SCALE:-paper}
suffix=$([ "$scale" = paper ] || echo "-$scale")

.venv/bin/lnexp prepare sweep=fig4_iwslt scale="$scale" "$@"
for sweep in fig2_warmup fig2_sgd fig2_readings fig4_iwslt constant_small_lr; do
  .venv/bin/lnexp train sweep="$sweep" scale="$scale" seed=1,2,3 "$@"
  for format in csv latex json md; do
    .venv/bin/lnexp table "$sweep$suffix" --format "$format"
  done
  .venv/bin/lnexp figure "$sweep$suffix"
  .venv/bin/lnexp dashboard "$sweep$suffix"
done
