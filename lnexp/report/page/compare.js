// Chosen runs side by side: the settings and scores in which they differ, and their translations.

const MOST_COMPARED = 4;
const EVERY = "all";  // decodings

function chosen() {  // the view's runs; at first one of each configuration
  const known = new Map(DATA.runs.filter(r => Object.keys(r.config).length || r.updates).map(r => [r.name, r]));
  if (view.compare) return view.compare.map(name => known.get(name)).filter(Boolean);
  const seen = new Set();
  return [...known.values()].filter(r => !seen.has(r.group) && seen.add(r.group)).slice(0, MOST_COMPARED);
}
function choose(names) {
  view.compare = names;
  saveView();
  compare();
  press();
}
function compare() {
  const runs = chosen(), names = runs.map(r => r.name);
  const others = DATA.runs.filter(r => r.updates && !names.includes(r.name));
  const add = el("select", { id: "add", "aria-label": "add a run", onchange: () => { choose([...names, add.value]); $("add").focus(); } },
    el("option", { value: "" }, names.length < MOST_COMPARED ? "add a run …" : `at most ${MOST_COMPARED} runs`), ...others.map(r => el("option", { value: r.name }, r.name)));
  add.disabled = names.length >= MOST_COMPARED || !others.length;
  $("pick").replaceChildren(...runs.map(run => el("span", { class: "chip" }, key(DATA.groups[run.group]), el("code", { class: "foreign" }, run.name),
    el("button", { type: "button", "aria-label": `leave out ${run.name}`, onclick: () => { choose(names.filter(n => n !== run.name)); $("add").focus(); } }, "×"))), add);
  differences(runs);
  translations(runs);
}
const columnName = run => `${DATA.groups[run.group].name}, seed ${run.seed === null ? NONE : run.seed}`;
const columnHead = runs => runs.map(run => [columnName(run), "foreign run"]);

function differences(runs) {
  const text = (run, name) => name in run.config ? run.config[name] : name in DATA.config ? DATA.config[name] : NONE;
  const names = [...new Set(runs.flatMap(r => Object.keys(r.config)))].sort().filter(name => new Set(runs.map(r => text(r, name))).size > 1);
  const row = (name, cells) => el("tr", {}, el("td", {}, name), ...cells.map(cell => el("td", { class: "foreign" }, cell)));
  const last = (run, field) => { const v = run.valid[field].filter(y => y !== null); return v.length ? figure(v[v.length - 1]) : NONE; };
  // Scores of different decodings are different numbers: a row each, named where there are several.
  const several = new Set(runs.flatMap(r => r.scores.map(s => s[3]))).size > 1;
  const kind = ([split, measure, , decode]) => `${split} ${measure}${several ? `, ${decode}` : ""}`;
  const kinds = [...new Set(runs.flatMap(r => r.scores.map(kind)))];
  const score = (run, wanted) => { const s = run.scores.findLast(each => kind(each) === wanted); return s ? two(s[2]) : NONE; };
  const same = Object.keys(DATA.config).length;
  $("diff").replaceChildren(head([["field", null], ...columnHead(runs)]), el("tbody", {},
    ...names.map(name => row(el("code", {}, name), runs.map(r => el("code", {}, text(r, name))))),
    el("tr", {}, el("td", { class: "soft", colspan: runs.length + 1 }, runs.length < 2 ? "Choose two runs or more." :
      names.length ? `All else is equal (${same} settings are the same in every run).` : "No setting that matters to the numbers.")),
    row("state", runs.map(r => state(r.state, r.stands))),
    row("last validation loss", runs.map(r => last(r, "loss_bits"))),
    ...kinds.map(each => row(each, runs.map(r => score(r, each))))));
}
function translations(runs) {
  const found = DATA.samples;
  $("translated").hidden = !found;
  if (!found) return;
  const ways = [...new Set(DATA.runs.flatMap(r => Object.keys(r.translations)))].sort(), several = ways.length > 1;
  const wanted = pickOne("decoding", [...ways, ...(several ? [EVERY] : [])].map(way => [way, way]), view.decoding);
  $("decodings").hidden = !several;
  $("h-samples").textContent = `Translations of the ${found.split} set`;
  const columns = runs.flatMap(run => ways.filter(way => (way === wanted || wanted === EVERY) && run.translations[way])
    .map(way => ({ name: `${columnName(run)}${wanted === EVERY ? `: ${way}` : ""}`, lines: run.translations[way] })));
  const sentence = (text, kind) => el("td", { class: `foreign ${kind}`, dir: "auto" }, text);
  $("samples").replaceChildren(
    head([["line", "num"], ...(found.source ? [["source", null]] : []), ...(found.reference ? [["reference", null]] : []), ...columns.map(c => [c.name, "foreign run"])]),
    el("tbody", {}, ...found.numbers.map((line, i) => el("tr", {}, el("td", { class: "num soft" }, whole(line)),
      ...(found.source ? [sentence(found.source[i], "soft")] : []), ...(found.reference ? [sentence(found.reference[i], "")] : []),
      ...columns.map(({ lines }) => sentence(lines[i], found.reference && lines[i] === found.reference[i] ? "same" : ""))))));
}
