// What `lnexp probe` measured: a quantity of one module by layer, and of the last layer by depth (Figure 3).

const STACKS = ["encoder", "decoder"];
const PAPER = { fc1: "W1 (fc1)", fc2: "W2 (fc2)" };

const band = (values, xs) => ({ xs, ys: values[0], counts: xs.map(() => values[3]), ...(values[1] ? { lo: values[1], hi: values[2] } : {}) });
const capital = text => text[0].toUpperCase() + text.slice(1);
const lastOf = values => values === null ? null : values[values.length - 1];

function probedByLayer(found) {
  const several = new Set(found.map(l => l.of.setting)).size > 1;
  return found.map(({ group, of, values }) => {
    const look = lookOf(group);
    return { ...look, label: several ? `${look.label} (${of.setting})` : look.label, ...band(values, values[0].map((_, i) => i + 1)) };
  });
}
function probedByDepth(found, stack) {  // a line a family: configurations that differ in nothing but their depth
  const { families, places } = DATA.probed;
  return families.flatMap((family, f) => [...new Set(found.map(l => l.of.setting))].map(setting => {
    const models = found.filter(l => places[l.group].family === f && l.of.setting === setting && places[l.group][stack] === l.values[0].length);
    models.sort((a, b) => a.values[0].length - b.values[0].length);
    const at = i => models.map(l => lastOf(l.values[i]) ?? lastOf(l.values[0]));
    const counts = models.map(l => l.values[3]), wide = models.some(l => l.values[1]);
    return { ...lookLine(family.look, family.name), group: models.length ? models[0].group : 0, xs: models.map(l => l.values[0].length), ys: at(0), counts, ...(wide ? { lo: at(1), hi: at(2) } : {}) };
  })).filter(line => line.xs.length > 1);
}
function probedPanels(quantity, module) {
  const wanted = DATA.probed.lines.map(([group, s, ...values]) => ({ group, of: DATA.probed.series[s], values }))
    .filter(l => l.of.quantity === quantity && l.of.module === module && shown(l.group)), panels = [];
  for (const at of ["init", "checkpoint"]) for (const [axis, build] of [[LAYER, probedByLayer], [DEPTH, probedByDepth]]) for (const stack of STACKS) {
    const found = wanted.filter(l => l.of.at === at && l.of.stack === stack), lines = build(found, stack);
    const updates = [...new Set(found.map(l => l.of.updates))].sort((a, b) => a - b).map(whole).slice(0, 3).join(", ");
    const when = at === "init" ? "at initialisation" : `after ${updates} updates`;
    const title = `${axis === LAYER ? `${stack} layers` : `Last ${stack} layer by depth`} ${when}`;
    if (lines.length) panels.push({ zero: true, height: 240, axis, sync: axis[1], lines, holder: `probed-${at}-${axis === LAYER ? "layer" : "depth"}-${stack}`, title: capital(title), unit: PAPER[module] || module });
  }
  return panels;
}
function pickOne(id, options, wanted) {  // fill a select and give what it stands at
  const value = options.some(([v]) => v === wanted) ? wanted : (options[0] || [""])[0];
  $(id).replaceChildren(...options.map(([v, text]) => el("option", { value: v }, text)));
  $(id).value = value;
  return value;
}
function renderProbed() {
  const found = DATA.probed;
  $("measured").hidden = !found;
  if (!found) return;
  const quantity = pickOne("quantity", found.quantities, view.quantity);
  const modules = [...new Set(found.series.filter(s => s.quantity === quantity).map(s => s.module))].sort();
  const module = pickOne("module", modules.map(m => [m, PAPER[m] || m]), modules.includes(view.module) ? view.module : "fc2");
  const panels = probedPanels(quantity, module), unit = found.quantities.find(([q]) => q === quantity);
  drawAll($("probes"), panels.map(panel => isLog(panel) ? { ...panel, lines: panel.lines.map(aboveZero) } : panel));
  const seeds = panels.flatMap(p => p.lines).some(line => line.lo), settings = [...new Set(found.series.map(s => s.setting))];
  $("measured-reading").textContent = [unit ? `${capital(unit[1])}${unit[2] ? `, ${unit[2]}` : ""}.` : "", seeds ? "Line: mean over seeds; band: from the lowest to the highest seed." : "",
    panels.length ? "" : "All of it is hidden.", settings.filter(Boolean).length ? `Measured on ${settings.filter(Boolean).slice(0, 3).join("; ")}.` : ""].filter(Boolean).join(" ");
}
