// Rows of runs in, lines to draw out: {label, group, xs, ys} of each run, or the mean over seeds with {lo, hi, counts}.

function along(run, table, x) {
  if (x !== "tokens") return table[x];
  return table.updates.map(u => u === null || run.tokens_per_update === null ? null : u * run.tokens_per_update);
}
function curve(run, table, numbers, x, smooth) {  // a null y is a gap: a number that is not finite
  const us = [], xs = [], ys = [];
  along(run, table, x).forEach((at, i) => {
    if (at === null || (view.xlog && at <= 0) || (xs.length && at <= xs[xs.length - 1])) return;
    us.push(table.updates[i]); xs.push(at); ys.push(numbers[i]);
  });
  return { us, xs, ys: smooth ? smoothed(ys, smooth) : ys };
}
function smoothed(ys, width) {  // the mean of as many rows before as after: a curve is not shifted by it
  return ys.map((y, i) => {
    if (y === null) return null;
    const reach = Math.min(width, i, ys.length - 1 - i);
    const near = ys.slice(i - reach, i + reach + 1).filter(v => v !== null);
    return near.reduce((a, b) => a + b, 0) / near.length;
  });
}
function valuesAt(grid, us, values) {  // linear between rows; null outside of them and beside a gap
  let i = 0;
  return grid.map(u => {
    if (!us.length || u < us[0] || u > us[us.length - 1]) return null;
    while (us[i + 1] <= u) i++;
    if (us[i] === u) return values[i];
    return values[i] === null || values[i + 1] === null ? null : values[i] + (values[i + 1] - values[i]) * (u - us[i]) / (us[i + 1] - us[i]);
  });
}
function overSeeds(curves) {
  // The mean at the same update, whatever the axis, so that a slow seed does not pull the others' curve to the side;
  // drawn while at least half of the seeds have a number there.
  let grid = [...new Set(curves.flatMap(c => c.us))].sort((a, b) => a - b);
  if (grid.length > 800) {
    const low = grid[0], span = grid[grid.length - 1] - low;
    grid = Array.from({ length: 401 }, (_, i) => low + span * i / 400);
  }
  const each = curves.map(c => [valuesAt(grid, c.us, c.xs), valuesAt(grid, c.us, c.ys)]);
  const mean = values => values.reduce((a, b) => a + b) / values.length;
  const line = { xs: [], ys: [], lo: [], hi: [], counts: [] };
  grid.forEach((_, i) => {
    const here = each.filter(([, ys]) => ys[i] !== null), values = here.map(([, ys]) => ys[i]);
    const x = here.length ? mean(here.map(([xs]) => xs[i])) : null;
    if (x === null || x <= line.xs[line.xs.length - 1]) return;
    const enough = here.length * 2 >= curves.length;
    line.xs.push(x); line.counts.push(here.length);
    line.ys.push(enough ? mean(values) : null);
    line.lo.push(enough ? Math.min(...values) : null);
    line.hi.push(enough ? Math.max(...values) : null);
  });
  return line;
}
function aboveZero(line) {  // what a log axis can show; a band that reaches to 0 ends at its line
  const keep = y => y === null || y <= 0 ? null : y;
  return { ...line, ys: line.ys.map(keep), ...(line.lo ? { lo: line.lo.map((y, i) => keep(y) ?? keep(line.ys[i])), hi: line.hi.map(keep) } : {}) };
}
const isLog = chart => view.ylog || Boolean(chart.log);
function linesOf(chart, groups) {
  const smooth = chart.split === "train" && chart.field !== "lr" ? view.smooth : 0, log = isLog(chart);
  const wanted = new Set(groups), byGroup = new Map(groups.map(g => [g, []])), ends = [];
  for (const run of DATA.runs) {
    if (!wanted.has(run.group) || !run[chart.split].updates.length) continue;
    const table = run[chart.split], found = curve(run, table, table[chart.field], view.x, smooth);
    byGroup.get(run.group).push(found);
    if (run.state === "diverged") ends.push(lastPoint(found, log));
  }
  const lines = [];
  for (const [g, curves] of byGroup) {
    if (!view.each && curves.length > 1) lines.push({ ...lookOf(g), ...overSeeds(curves), width: 2 });
    else for (const { xs, ys } of curves) lines.push({ ...lookOf(g), xs, ys, width: curves.length > 1 ? 1.3 : 2 });
  }
  return { lines: log ? lines.map(aboveZero) : lines, ends: ends.filter(Boolean) };
}
function lastPoint({ xs, ys }, log) {
  for (let i = ys.length - 1; i >= 0; i--) if (ys[i] !== null && !(log && ys[i] <= 0)) return [xs[i], ys[i]];
  return null;
}
