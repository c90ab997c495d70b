// The tables: results beside the paper, the paper's claims, costs, and every run with its state.

const head = names => el("thead", {}, el("tr", {}, ...names.map(([text, kind]) => el(text ? "th" : "td", { class: kind, scope: text ? "col" : null }, text))));
const state = (kind, text) => el("span", { class: `state ${kind}${text.length < 24 ? " brief" : ""}` }, text);
const STATES = ["failed", "damaged", "diverged", "cut", "interrupted", "running", "missing", "probed", "done"];
const worst = states => STATES.find(s => states[s]);  // the mark of a row with several runs
const two = v => v === null || v === undefined ? NONE : v.toFixed(2);

function results() {
  const table = DATA.table, split = table.metric ? table.metric.split : "test";
  const compared = table.rows.some(r => r.paper.difference !== null);
  const several = table.rows.some(r => r.bleu && r.bleu.n > 1), blank = row => row.bleu || {};
  const interval = b => b.half_width === null || b.half_width === undefined ? NONE : `${two(b.mean - b.half_width).replace("-", "−")} to ${two(b.mean + b.half_width)}`;
  const rows = table.rows.map((row, g) => el("tr", {},
    el("td", {}, key(DATA.groups[g])),
    ...DATA.groups[g].levels.map(text => el("td", { class: text.length < 24 ? "foreign short" : "foreign" }, text)),
    el("td", { class: "num" }, el("span", { class: "big" }, two(blank(row).mean)), row.bleu ? el("div", { class: "soft" }, row.bleu.n > 1 ? `sd ${two(row.bleu.sd)}, n=${row.bleu.n}` : "n=1") : null),
    ...(several ? [el("td", { class: "num" }, interval(blank(row)))] : []),
    el("td", { class: "num" }, row.valid_loss_bits ? row.valid_loss_bits.text : NONE),
    el("td", {}, state(worst(row.states), row.state)),
    el("td", { class: "num" }, row.updates.length ? [...new Set([row.updates[0], row.updates[row.updates.length - 1]])].map(whole).join("–") : NONE,
      row.updates.length ? el("div", { class: "soft" }, row.wall) : null),
    compared ? el("td", { class: "num" }, row.paper.difference === null ? NONE : (row.paper.difference > 0 ? "+" : "") + row.paper.difference.toFixed(2)) : null,
    el("td", { class: "words foreign", title: row.paper.locus }, row.paper.words)));
  $("table").replaceChildren(
    head([["", null], ...DATA.factors.map(f => [f.label, null]), [`${split} sacreBLEU`, "num"], ...(several ? [["95% interval", "num"]] : []), ["valid loss, bits", "num"], ["state", null], ["updates, time", "num"], ...(compared ? [["ours − paper", "num"]] : []), ["in the paper", null]]),
    el("tbody", {}, ...rows));
  $("notes").replaceChildren(...table.notes.map(note => el("li", {}, note)));
}
function sheet(id, { rows, notes }, headers, cell) {  // a table made in Python, and what stands under it
  $(id).replaceChildren(head(headers), el("tbody", {}, ...rows.map((row, r) => el("tr", {}, ...row.map((text, i) => cell(text, i, r))))));
  $(`${id}-notes`).replaceChildren(...notes.map(note => el("li", {}, note)));
}
function claims() {
  const found = DATA.claims, last = found && found.headers.length - 1;
  $("judged").hidden = found === null;
  if (found === null) return;
  $("h-claims").textContent = found.title.replace(/\.$/, "");
  const kind = (text, i) => found.right.includes(i) ? "num" : i === last ? "words" : text.length < 11 ? "foreign short" : "foreign side";
  sheet("claims", found, found.headers.map((name, i) => [name, found.right.includes(i) ? "num" : null]), (text, i, r) => i ? el("td", { class: kind(text, i) }, text)
    : el("td", {}, state(found.marks[r], text), found.marks[r] === "open" ? el("div", { class: "soft foreign" }, found.how[r]) : null));
}
function costs() {
  $("spent").hidden = DATA.costs === null;
  if (DATA.costs === null) return;
  const [, ...names] = DATA.costs.headers;
  sheet("costs", DATA.costs, [["", null], ...names.map(name => [name, "num"])], (text, i) => el("td", { class: i ? "num" : "foreign" }, text));
}
function runList() {
  const wanted = DATA.runs.filter(run => !view.state || run.state === view.state);
  $("runs").replaceChildren(
    head([["", null], ["run", null], ["seed", "num"], ["state", null], ["updates", "num"], ["wall-clock", "num"], ["reason", null]]),
    el("tbody", {}, ...wanted.map(run => el("tr", {},
      el("td", {}, key(DATA.groups[run.group])), el("td", { class: "foreign name" }, el("code", {}, run.name)),
      el("td", { class: "num" }, run.seed === null ? NONE : String(run.seed)), el("td", {}, state(run.state, /^(diverged|cut|interrupted)$/.test(run.state) ? run.stands : run.state)),
      el("td", { class: "num" }, run.updates ? whole(run.updates) : NONE), el("td", { class: "num" }, run.wall),
      el("td", { class: "words foreign" }, run.reason)))));
}
function summary() {  // the head of the page, and the states that the list of runs can be narrowed to
  const counts = {};
  for (const run of DATA.runs) counts[run.state] = (counts[run.state] || 0) + 1;
  const kinds = STATES.filter(s => counts[s]).reverse();
  if (!kinds.includes(view.state)) view.state = "";
  document.title = `${DATA.table.name}: warm-up ablation`;
  $("title").textContent = DATA.table.name;
  const plural = (n, word) => `${whole(n)} ${word}${n === 1 ? "" : "s"}`;
  $("kicker").replaceChildren(`${plural(DATA.groups.length, "configuration")}, ${plural(DATA.runs.length, "run")}`, ...kinds.map(s => state(s, `${whole(counts[s])} ${s}`)));
  $("summary").textContent = DATA.summary;
  // A sweep that was only probed has no curve, score or cost: its page is what was measured.
  for (const id of ["charts", "outcome", "together"]) $(id).hidden = DATA.probed && !DATA.runs.some(run => run.state !== "probed" && run.state !== "missing");
  $("states").replaceChildren(...(kinds.length > 1 ? ["", ...kinds] : []).map(s => el("button", {
    type: "button", "aria-pressed": String(view.state === s), onclick: () => { view.state = s; saveView(); summary(); runList(); press(); },
  }, s || "all")));
}
