// All that a reader can change, and its way into the address and back: a link shows what its sender saw.

const START = { x: "updates", xlog: false, ylog: false, each: false, smooth: 0, rows: "", columns: "", metric: "valid.loss_bits", kind: "", quantity: "", module: "", decoding: "", theme: "", state: "" };
const view = { ...START, off: new Set(), hidden: new Set(), zoom: null, compare: null, lit: null };

const level = (factor, text) => `${factor.key}=${text}`;
const shown = g => !view.hidden.has(DATA.groups[g].id) && DATA.factors.every((f, i) => !view.off.has(level(f, DATA.groups[g].levels[i])));

function saveView() {
  const said = new URLSearchParams();
  for (const [name, usual] of Object.entries(START)) if (view[name] !== usual) said.set(name, view[name] === true ? "1" : view[name]);
  for (const name of ["off", "hidden"]) for (const item of view[name]) said.append(name, item);
  if (view.zoom) said.set("zoom", view.zoom.map(v => +v.toPrecision(8)).join(","));
  if (view.compare) for (const name of view.compare) said.append("run", name);
  const text = said.toString();
  if (location.hash.slice(1) !== text) history.replaceState(null, "", text ? "#" + text : location.pathname + location.search);
}
function loadView() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const [name, usual] of Object.entries(START)) {
    const text = said.get(name);
    view[name] = text === null ? usual : typeof usual === "boolean" ? text === "1" : typeof usual === "number" ? Math.min(20, Math.max(0, Math.round(+text || 0))) : text;
  }
  // An address may be older than the sweep, or mistyped: what it names and is not there is passed over.
  if (!AXES.some(([name]) => name === view.x)) view.x = START.x;
  if (!CHARTS.some(c => c.id === view.metric)) view.metric = START.metric;
  if (!["", "light", "dark"].includes(view.theme)) view.theme = "";
  for (const name of ["rows", "columns"]) if (!DATA.factors.some(f => f.key === view[name])) view[name] = "";
  for (const name of ["off", "hidden"]) view[name] = new Set(said.getAll(name));
  const zoom = (said.get("zoom") || "").split(",").map(Number);
  view.zoom = zoom.length === 2 && zoom.every(Number.isFinite) && zoom[0] < zoom[1] ? zoom : null;
  view.compare = said.has("run") ? said.getAll("run").slice(0, MOST_COMPARED) : null;
}
function flip(set, item) { set.has(item) ? set.delete(item) : set.add(item); }
