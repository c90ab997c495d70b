// Gradient norms measured during training (probe.every), by layer, counted from 1: at both ends, and along the run.

const NUMBER = /(?<=^|\.)\d+(?=\.|$)/;  // of "decoder.layers.5.fc2" the 5
const kindOf = name => name.replace(NUMBER, "*");
const layerOf = name => +(name.match(NUMBER) || [0])[0] + 1;
const nameOf = kind => kind.replace(/^(\w+)\.layers\.\*\.(.+)$/, (_, stack, module) => `${stack} layers, ${PAPER[module] || module}`);
const MOST_PROBED = 12;  // configurations with a chart of their own

function probesOf(g) { return DATA.runs.filter(r => r.group === g && r.probe && r.probe.updates.length); }

function byLayer(names, groups, last) {  // a line a configuration: the mean of its seeds at one end of the run
  return groups.map(g => {
    const depths = names.map(layerOf), curves = probesOf(g).map(run => ({ us: depths, xs: depths, ys: names.map(name => {
      const norms = run.probe.grad[DATA.layers.indexOf(name)];
      return norms[last ? norms.length - 1 : 0];
    }) }));
    return { ...lookOf(g), ...(curves.length > 1 ? overSeeds(curves) : curves[0]) };
  });
}
function alongRun(names, g) {  // a line a matrix: the mean of the seeds
  return names.map((name, i) => {
    const curves = probesOf(g).map(run => curve(run, run.probe, run.probe.grad[DATA.layers.indexOf(name)], view.x, 0));
    const { xs, ys } = curves.length > 1 ? overSeeds(curves) : curves[0];
    return { label: NUMBER.test(name) ? `layer ${layerOf(name)}` : name, group: g, stroke: depthColour(names.length < 2 ? 0 : i / (names.length - 1)), dash: [], width: 1.6, xs, ys };
  });
}
function renderLayers() {
  const groups = DATA.groups.map((_, g) => g).filter(g => shown(g) && probesOf(g).length);
  $("probed").hidden = !DATA.layers.length;
  if (!DATA.layers.length) return;
  const kinds = [...new Set(DATA.layers.map(kindOf))];
  const kind = kinds.includes(view.kind) ? view.kind : kinds.find(k => k === "decoder.layers.*.fc2") || kinds[0];
  pickOne("kind", kinds.map(k => [k, nameOf(k)]), kind);
  const names = DATA.layers.filter(name => kindOf(name) === kind), panels = [];
  const ends = groups.flatMap(g => probesOf(g).map(r => r.probe.updates)), several = ends.some(u => u.length > 1);
  const common = { zero: true, unit: "", height: 240, axis: LAYER, sync: "layers" };
  if (names.length > 1 && groups.length) {
    const at = pick => [...new Set(ends.map(pick))].sort((a, b) => a - b).map(u => `update ${whole(u)}`).slice(0, 3).join(", ");
    panels.push({ ...common, holder: "depth-first", title: `By layer at ${at(u => u[0])}`, lines: byLayer(names, groups, false) });
    if (several) panels.push({ ...common, holder: "depth-last", title: `By layer at ${at(u => u[u.length - 1])}`, lines: byLayer(names, groups, true) });
  }
  if (several || names.length < 2) for (const g of groups.slice(0, MOST_PROBED))
    panels.push({ ...common, holder: `layers-${DATA.groups[g].id}`, title: DATA.groups[g].name, unit: names.length > 1 ? "violet: first layer, green: last" : "", axis: axisNow(), sync: "charts", lines: alongRun(names, g) });
  drawAll($("layers"), panels.map(panel => isLog(panel) ? { ...panel, lines: panel.lines.map(aboveZero) } : panel));
}
