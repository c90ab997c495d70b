// One chart: lines with bands in, a uPlot in the page out, with hover, arrow keys and a closer look.

const plots = new Map();  // id of the holder -> {u, panel}
const SECONDS = [1, 2, 5, 10, 15, 30].flatMap(n => [n, n * 60, n * 3600]).concat(0.1, 0.5, 86400, 172800, 604800).sort((a, b) => a - b);
const LOG_SECONDS = [1, 2, 5, 10, 30].flatMap(n => [n, n * 60, n * 3600]).concat(86400, 432000, 864000).sort((a, b) => a - b);
let printing = false;  // then charts have the size of their place on paper, not on the screen
const MOST_MARKED = 40;  // numbers of a line that has markers
const STRIDE = 3;  // series of a line: itself, its lower and its upper edge

function joined(lines, logx) {  // one x for all lines; with very many points, x is rounded to a 600th of the axis
  const blank = line => line.xs.map(() => null);
  const tables = lines.map(l => [l.xs, l.ys, l.lo || blank(l), l.hi || blank(l)]);
  const count = tables.reduce((n, t) => n + t[0].length, 0);
  if (count * tables.length <= 1e6) return uPlot.join(tables);
  const scale = logx ? Math.log : v => v, back = logx ? Math.exp : v => v;
  const ends = tables.flatMap(t => [t[0][0], t[0][t[0].length - 1]]).filter(v => v !== undefined).map(scale);
  const low = Math.min(...ends), cell = (Math.max(...ends) - low) / 600 || 1;
  return uPlot.join(tables.map(([xs, ...columns]) => {
    const cells = new Map(xs.map((x, i) => [Math.round((scale(x) - low) / cell), i]));
    return [[...cells.keys()].map(k => back(low + k * cell)), ...columns.map(c => [...cells.values()].map(i => c[i]))];
  }));
}
function yRange(panel) {
  if (isLog(panel)) return (u, low, high) => low === null ? [1, 10] : [low / 1.08, high * 1.08];
  return (u, low, high) => {
    if (low === null) return [0, 1];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [panel.zero && low >= 0 ? 0 : low - room, high + room];
  };
}
function xRange(panel) {
  return (u, low, high) => {
    if (view.zoom && panel.axis[0] === view.x) return view.zoom;
    if (low === null) return [0, 1];
    // From 0 where that costs little room: charts of rows and of validations then begin at the same place.
    const near = panel.axis[0] !== "layer" && !view.xlog && low > 0 && low < high * 0.45;
    return low < high ? [near ? 0 : low, high] : [low * 0.9, high * 1.1 || 1];
  };
}
function draw(panel, holder) {
  plots.get(holder.id)?.u.destroy();
  plots.delete(holder.id);
  holder.replaceChildren();
  holder.style.minHeight = `${panel.height}px`;
  const { lines } = panel, logx = view.xlog && panel.axis[0] !== "layer";
  if (!lines.some(line => line.ys.some(y => y !== null))) {
    holder.append(el("div", { class: "empty" }, panel.blank || (lines.length ? "no number to draw here" : "no rows yet, or all hidden")));
    return;
  }
  const font = "12px system-ui, sans-serif", soft = css("--soft");
  const axis = { stroke: soft, grid: { stroke: css("--grid"), width: 1 }, ticks: { show: false }, font, gap: 6 };
  const mark = t => panel.axis[3](t), tip = el("div", { class: "tip", hidden: "" });
  const timeMarks = (_, __, low, high) => { const found = LOG_SECONDS.filter(s => s >= low && s <= high); return found.length > 2 ? found : logMarks(low, high); };
  const decades = { splits: (_, __, low, high) => logMarks(low, high), filter: (_, splits) => splits };
  const u = new uPlot({
    width: printing ? 420 : holder.clientWidth, height: printing ? 230 : panel.height, padding: [10, 18, 0, 0], legend: { show: false },
    scales: {
      x: { time: false, distr: logx ? 3 : 1, range: panel.range?.x ? () => panel.range.x : xRange(panel) },
      y: { distr: isLog(panel) ? 3 : 1, range: panel.range?.y ? () => panel.range.y : yRange(panel) },
    },
    axes: [
      { ...axis, size: 30, space: 64, incrs: panel.axis[0] === "wall_s" ? SECONDS : undefined, ...(logx ? { ...decades, ...(panel.axis[0] === "wall_s" ? { splits: timeMarks } : {}) } : {}),
        values: (_, ticks) => ticks.map(mark),
        ...(panel.small ? {} : { label: panel.axis[1], labelSize: 18, labelGap: 0, labelFont: font }) },
      { ...axis, size: 54, ...(isLog(panel) ? decades : {}), values: (_, ticks) => ticks.map(tick) },
    ],
    series: [{}, ...lines.flatMap(line => {
      const edge = { stroke: "transparent", width: 0, points: { show: false }, alpha: strength(line) };
      return [{ stroke: line.stroke, width: line.width || 2, dash: line.dash, alpha: strength(line), points: { show: line.xs.length < 2 } }, edge, edge];
    })],
    bands: lines.flatMap((line, i) => line.lo ? [{ series: [i * STRIDE + 3, i * STRIDE + 2], fill: line.fill }] : []),
    cursor: { y: false, drag: { x: true, y: false, setScale: false }, sync: { key: panel.sync || "charts", setSeries: false },
      points: lines.length > 60 ? { show: false } : { size: 7 }, dataIdx: nearest, bind: { dblclick: () => () => zoomTo(null) } },
    hooks: {
      setCursor: [plot => readOut(plot, panel, tip)],
      setSelect: [plot => { if (plot.select.width > 4 && panel.axis[0] === view.x) zoomTo([plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")]); }],
      drawSeries: [(plot, k) => { if ((k - 1) % STRIDE === 0 && panel.split !== "train") marks(plot, panel.lines[(k - 1) / STRIDE], plot.data[k]); }],
      draw: [plot => (panel.ends || []).forEach(end => cross(plot, end))],
    },
  }, joined(lines, logx), holder);
  u.over.append(tip);
  plots.set(holder.id, { u, panel });
}
const strength = line => view.lit === null || !shown(view.lit) || view.lit === line.group ? 1 : 0.14;
function relight(group) {  // make one configuration stand out, without drawing anew from the rows
  if (view.lit === group) return;
  view.lit = group;
  for (const { u, panel } of plots.values()) {
    panel.lines.forEach((line, i) => { for (let k = 1; k <= STRIDE; k++) u.series[i * STRIDE + k].alpha = strength(line); });
    u.redraw(false);
  }
}
function zoomTo(range) {  // after uPlot is done with its event: drawing anew ends the plots that it tells of it
  setTimeout(() => { if (String(view.zoom) !== String(range)) { view.zoom = range; changed(); } });
}
function nearest(u, series, index) {  // lines do not share their x: take the closest number of this one
  if (series === 0) return index;
  if ((series - 1) % STRIDE) return null;
  const xs = u.data[0], ys = u.data[series];
  if (ys[index] != null) return index;
  let before = index, after = index;
  while (before >= 0 && ys[before] == null) before--;
  while (after < ys.length && ys[after] == null) after++;
  if (before < 0 || after >= ys.length) return before < 0 ? Math.min(after, ys.length - 1) : before;
  return xs[index] - xs[before] <= xs[after] - xs[index] ? before : after;
}
function marks(u, line, ys) {  // the marker of a configuration on its numbers, where there is room for it
  if (!line.marker || line.xs.length > MOST_MARKED) return;
  const c = u.ctx, r = 3.2 * devicePixelRatio, corners = CORNERS[line.marker.shape], { min, max } = u.scales.x;
  c.save();
  c.globalAlpha = strength(line); c.setLineDash([]); c.lineWidth = 1.6 * devicePixelRatio;
  c.strokeStyle = line.stroke; c.fillStyle = line.marker.hollow ? css("--card") : line.stroke;
  u.data[0].forEach((at, i) => {
    if (ys[i] === null || ys[i] === undefined || at < min || at > max) return;
    const x = u.valToPos(at, "x", true), y = u.valToPos(ys[i], "y", true);
    c.beginPath();
    if (corners) corners.forEach(([a, b]) => c.lineTo(x + r * a, y + r * b)); else c.arc(x, y, r, 0, 7);
    c.closePath(); c.fill(); c.stroke();
  });
  c.restore();
}
function cross(u, [px, py]) {  // where a diverged run has its last number
  if (px > u.scales.x.max || px < u.scales.x.min || py > u.scales.y.max || py < u.scales.y.min) return;
  const x = u.valToPos(px, "x", true), y = u.valToPos(py, "y", true), r = 5 * devicePixelRatio, c = u.ctx;
  c.save();
  for (const [style, width] of [[css("--card"), 5], [css("--bad"), 2.4]]) {
    c.strokeStyle = style; c.lineWidth = width * devicePixelRatio; c.lineCap = "round";
    c.beginPath(); c.moveTo(x - r, y - r); c.lineTo(x + r, y + r); c.moveTo(x + r, y - r); c.lineTo(x - r, y + r); c.stroke();
  }
  c.restore();
}
let active = null;  // id of the holder that the pointer or the focus is on
function readOut(u, panel, tip) {
  const { left, idx } = u.cursor;
  if (active !== panel.id || left < 0 || idx === null || idx === undefined) { tip.hidden = true; return; }
  const at = u.data[0][idx], found = new Map();
  panel.lines.forEach((line, i) => {
    const k = u.cursor.idxs[i * STRIDE + 1], y = k === null || k === undefined ? null : u.data[i * STRIDE + 1][k];
    if (y === null || y === undefined || at > line.xs[line.xs.length - 1] * 1.02 + 1e-9) return;  // it has ended here
    const label = line.label, seen = found.get(label) || { line, label, ys: [] };
    seen.ys.push(y);
    if (line.lo) Object.assign(seen, { lo: u.data[i * STRIDE + 2][k], hi: u.data[i * STRIDE + 3][k], n: line.counts[line.xs.indexOf(u.data[0][k])] });
    found.set(label, seen);
  });
  const rows = [...found.values()].map(f => ({ ...f, mean: f.ys.reduce((a, b) => a + b) / f.ys.length, n: f.n || f.ys.length }));
  rows.sort((a, b) => b.mean - a.mean);
  tip.replaceChildren(el("table", {}, el("caption", {}, panel.axis[2](at)), el("tbody", {}, ...rows.slice(0, 14).map(row => el("tr", {},
    el("td", {}, sample(row.line)), el("td", { class: "foreign" }, row.label),
    el("td", { class: "value" }, figure(row.mean)),
    el("td", { class: "soft" }, row.lo === undefined || row.n < 2 ? row.n > 1 ? `mean of ${row.n}` : "" : `${figure(row.lo)} to ${figure(row.hi)}, n=${row.n}`))))));
  tip.hidden = !rows.length;
  // On the side that has more room, and never beyond the window.
  const from = u.over.getBoundingClientRect().left, wide = tip.offsetWidth, most = document.documentElement.clientWidth - 8 - wide - from;
  tip.style.left = `${Math.max(8 - from, Math.min(most, left > u.over.clientWidth / 2 ? left - 14 - wide : left + 14))}px`;
  if (document.activeElement === u.root.parentNode)
    $("spoken").textContent = `${panel.title}, ${panel.axis[2](at)}: ` + rows.slice(0, 14).map(row => `${row.label} ${figure(row.mean)}`).join("; ");
}
function keys(event, id) {
  const plot = plots.get(id);
  const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 }[event.key], zoom = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
  if (!plot || event.ctrlKey || event.metaKey || event.altKey || (!step && !zoom && !["Escape", "Home", "End"].includes(event.key))) return;
  event.preventDefault();
  const { u, panel } = plot, xs = u.data[0], now = u.cursor.idx, none = now === null || now === undefined;
  if (event.key === "Escape") return u.setCursor({ left: -10, top: -10 });
  const { min, max } = u.scales.x;
  if (zoom) {
    if (panel.axis[0] !== view.x) return;
    const middle = none ? (min + max) / 2 : xs[now], half = (max - min) / 2 * zoom;
    const low = Math.max(xs[0], middle - half), high = Math.min(xs[xs.length - 1], middle + half);
    return zoomTo(low <= xs[0] && high >= xs[xs.length - 1] ? null : low < high ? [low, high] : view.zoom);
  }
  const first = xs.findIndex(x => x >= min), last = xs.findLastIndex(x => x <= max);
  const next = event.key === "Home" ? first : event.key === "End" ? last : none ? (step > 0 ? first : last) : now + step;
  u.setCursor({ left: u.valToPos(xs[Math.min(last, Math.max(first, next))], "x"), top: 10 });
}
