// Which charts there are, and how they stand: all measures once, or one measure in a grid by two factors.

// A chart is one line here; its column must stand in curves.py COLUMNS.
const CHARTS = [
  { split: "valid", field: "loss_bits", title: "Validation loss", unit: "bits per token, label-smoothed", wide: true },
  { split: "valid", field: "bleu", title: "Validation BLEU", unit: "sacreBLEU, valid split", wide: true, zero: true },
  { split: "train", field: "loss_bits", title: "Training loss", unit: "bits per token" },
  { split: "train", field: "lr", title: "Learning rate", unit: "", zero: true },
  { split: "train", field: "gnorm", title: "Gradient norm", unit: "log axis", log: true },
  { split: "train", field: "tokens_per_s", title: "Speed", unit: "target tokens/s", zero: true },
].map(chart => ({ ...chart, id: `${chart.split}.${chart.field}` }));
const MOST_FACETS = 12;  // of one factor

const axisNow = () => AXES.find(([name]) => name === view.x);
const levelsOf = factor => [...new Set(DATA.groups.map(g => g.levels[DATA.factors.indexOf(factor)]))];

function panelsNow() {
  const groups = DATA.groups.map((_, g) => g).filter(shown);
  if (!view.rows && !view.columns)
    return CHARTS.map(chart => ({ ...chart, holder: chart.id, height: chart.wide ? 300 : 220, groups }));
  const chart = CHARTS.find(c => c.id === view.metric);
  const [down, across] = [view.rows, view.columns].map(key => DATA.factors.findIndex(f => f.key === key));
  const levels = i => i < 0 ? [null] : levelsOf(DATA.factors[i]).slice(0, MOST_FACETS);
  const name = (i, text) => text === null ? "" : `${DATA.factors[i].label} ${text}`;
  return levels(down).flatMap((row, r) => levels(across).map((column, c) => ({
    ...chart, holder: `facet-${r}-${c}`, height: 200, small: true, wide: false, unit: "",
    title: [name(down, row), name(across, column)].filter(Boolean).join(", "),
    groups: groups.filter(g => (down < 0 || DATA.groups[g].levels[down] === row) && (across < 0 || DATA.groups[g].levels[across] === column)),
  })));
}
function sharedRange(panels) {  // facets are read against each other: the same axes for all
  let low = Infinity, high = -Infinity, first = Infinity, last = -Infinity;
  for (const line of panels.flatMap(p => p.lines)) for (const ys of [line.ys, line.lo || [], line.hi || []]) ys.forEach((y, i) => {
    if (y === null || (view.zoom && (line.xs[i] < view.zoom[0] || line.xs[i] > view.zoom[1]))) return;
    low = Math.min(low, y); high = Math.max(high, y); first = Math.min(first, line.xs[i]); last = Math.max(last, line.xs[i]);
  });
  return low > high ? {} : { y: yRange(panels[0])(null, low, high), x: xRange(panels[0])(null, first, last) };
}
function frames(place, panels) {  // keep the holders while the layout stays: the focus stays with them
  const layout = panels.map(p => `${p.holder} ${p.title} ${p.unit}`).join("\n");
  if (place.dataset.layout === layout) return;
  place.dataset.layout = layout;
  for (const old of place.querySelectorAll(".plot")) { plots.get(old.id)?.u.destroy(); plots.delete(old.id); }
  place.replaceChildren(...panels.map(panel => el("figure", { class: panel.wide ? "wide" : null },
    el("figcaption", { class: "foreign" }, panel.title, el("span", {}, panel.unit || "")),
    el("div", { class: "plot", id: panel.holder, tabindex: "0", role: "img", onkeydown: e => keys(e, panel.holder),
      onmouseenter: () => { active = panel.holder; }, onfocus: () => { active = panel.holder; },
      onblur: () => plots.get(panel.holder)?.u.setCursor({ left: -10, top: -10 }) }))));
}
function drawAll(place, panels) {
  frames(place, panels);
  for (const panel of panels) {
    const holder = $(panel.holder);
    panel.id = panel.holder;
    holder.setAttribute("aria-label", `${panel.title} by ${panel.axis[1]}: line chart. Arrow keys read values; the final ones stand in the table below.`);
    draw(panel, holder);
  }
}
function render() {
  const place = $("charts"), facets = Boolean(view.rows || view.columns);
  const panels = panelsNow().map(panel => ({ ...panel, ...linesOf(panel, panel.groups), axis: axisNow() }));
  if (facets) {
    const range = sharedRange(panels), across = DATA.factors.find(f => f.key === view.columns);
    panels.forEach(panel => { panel.range = range; });
    place.style.setProperty("--across", across ? Math.min(MOST_FACETS, levelsOf(across).length) : 1);
  }
  place.classList.toggle("facets", facets);
  drawAll(place, panels);
  renderLayers();
  renderProbed();
  const several = DATA.groups.some((_, g) => DATA.runs.filter(r => r.group === g && r.train.updates.length).length > 1);
  $("reading").textContent = [
    facets ? `${CHARTS.find(c => c.id === view.metric).title} in every frame, on the same axes.` : "",
    several && !view.each ? "Line: mean over seeds; band: from the lowest to the highest seed." : "",
    view.smooth ? `Training curves: mean of ${2 * view.smooth + 1} rows.` : "",
    view.x === "tokens" ? "Tokens: updates × tokens_per_update." : "",
    DATA.thinned > 1 ? `Of the training rows every ${whole(DATA.thinned)}th is drawn.` : "",
    DATA.runs.some(r => r.state === "diverged") ? "✕ marks where a diverged run ends." : "",
  ].filter(Boolean).join(" ");
}
