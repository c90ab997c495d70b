// The bar above the charts and the legend: every control writes the view and says so by changed().

function changed() {
  saveView();
  render();
  press();
}
function choice(name, label, options) {
  const set = el("fieldset", { class: "switch" }, el("legend", {}, label));
  for (const [value, text] of options) {
    const id = `${name}-${text}`, input = el("input", { type: "radio", name, id, onchange: () => { view[name] = value; if (name === "x") view.zoom = null; changed(); } });
    input.checked = view[name] === value;
    set.append(input, el("label", { for: id }, text));
  }
  return set;
}
function list(name, label, options) {
  const select = el("select", { id: `list-${name}`, onchange: () => { view[name] = select.value; changed(); } }, ...options.map(([value, text]) => el("option", { value }, text)));
  select.value = view[name];
  return el("label", { class: "field" }, label, select);
}
function slider() {
  const said = el("output", { for: "smooth" });
  const say = () => { said.textContent = view.smooth ? `${2 * view.smooth + 1} rows` : "off"; };
  const input = el("input", { type: "range", id: "smooth", min: 0, max: 20, step: 1, "aria-label": "smoothing of training curves", oninput: () => { view.smooth = +input.value; say(); changed(); } });
  input.value = view.smooth;
  say();
  return el("div", { class: "field" }, "smooth", input, said);
}
function controls() {
  const several = DATA.factors.filter(f => levelsOf(f).length > 1), facets = [["", "none"], ...several.map(f => [f.key, f.label])];
  $("controls").replaceChildren(
    el("div", {}, choice("x", "x axis", AXES.map(([name, label]) => [name, label])),
      choice("xlog", "x", [[false, "linear"], [true, "log"]]), choice("ylog", "y", [[false, "linear"], [true, "log"]]),
      choice("each", "seeds", [[false, "mean"], [true, "each"]]), slider(),
      el("button", { type: "button", id: "all", hidden: "", onclick: () => zoomTo(null) }, "whole x axis"),
      el("button", { type: "button", id: "reset", hidden: "", onclick: () => { location.hash = ""; loadView(); everything(); } }, "reset view")),
    el("div", {}, ...several.map(factor => el("fieldset", { class: "levels" }, el("legend", { class: "foreign" }, factor.label), el("div", {}, ...levelsOf(factor).map(text => el("button", {
      type: "button", class: "foreign", "data-level": level(factor, text), onclick: () => { flip(view.off, level(factor, text)); changed(); } }, text))))),
    ...(several.length ? [el("fieldset", {}, el("legend", {}, "facets"), list("rows", "down", facets), list("columns", "across", facets),
      list("metric", "show", CHARTS.map(c => [c.id, c.title])))] : [])));
}
function legend() {
  $("groups").replaceChildren(...DATA.groups.map((group, g) => el("li", {}, el("button", {
    type: "button", "data-group": group.id, onclick: () => { flip(view.hidden, group.id); changed(); },
    onmouseenter: () => relight(g), onmouseleave: () => relight(null), onfocus: () => relight(g), onblur: () => relight(null),
  }, key(group), el("span", { class: "foreign" }, group.name)))));
}
function press() {  // show on every control how the view stands
  document.querySelectorAll("[data-level]").forEach(b => b.setAttribute("aria-pressed", String(!view.off.has(b.dataset.level))));
  document.querySelectorAll("#groups button").forEach((b, g) => b.setAttribute("aria-pressed", String(shown(g))));
  $("all").hidden = view.zoom === null;
  $("reset").hidden = !location.hash;
  if ($("list-metric")) $("list-metric").disabled = !view.rows && !view.columns;
}
function theme() {
  document.documentElement.dataset.theme = view.theme;
  $("theme").value = view.theme;
}
