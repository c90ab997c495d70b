// Colour and dash by factor, so that a configuration looks the same in every chart and on every visit:
// Post-LN warm, Pre-LN cool, no warm-up dashed, the longest warm-up solid.

function isDark() {
  return view.theme ? view.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
function css(name) {  // a colour of the style sheet as the canvas can take it
  const probe = $("spoken");
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.style.color = "";
  return found;
}
const warmups = () => [...new Set(DATA.groups.map(g => g.warmup).filter(w => w > 0))].sort((a, b) => b - a);
const DASHES = [[], [2, 3], [10, 3, 2, 3], [14, 4]];

function shadeOf(group) {  // what tells groups of one model apart, beside what their dashes tell
  const byDash = warmups().length <= DASHES.length;
  return DATA.factors.map((f, i) => f.key === "model.norm" || (byDash && f.key === "schedule.warmup_updates") ? "" : group.levels[i]).join("|");
}
let shades = new Map();
function countShades() {  // groups come in factor order
  shades = new Map();
  for (const group of DATA.groups) {
    if (!shades.has(group.norm)) shades.set(group.norm, new Map());
    const known = shades.get(group.norm), shade = shadeOf(group);
    if (!known.has(shade)) known.set(shade, known.size);
  }
}
function colour(group, alpha = 1) {
  const dark = isDark(), known = shades.get(group.norm), single = known.size < 2;
  const step = single ? 0 : known.get(shadeOf(group)) / (known.size - 1);
  if (group.norm === "post") return `hsl(${single ? 20 : 4 + step * 40} 86% ${(dark ? 60 : 40) + step * 4}% / ${alpha})`;
  if (group.norm === "pre") return `hsl(${single ? 214 : 245 - step * 58} ${dark ? 88 : 72}% ${(dark ? 70 : 46) - step * 8}% / ${alpha})`;
  return `hsl(0 0% ${dark ? 63 : 44}% / ${alpha})`;
}
function depthColour(step) {  // from the first layer (violet) to the last (green)
  return `hsl(${285 - 150 * step} ${isDark() ? 60 : 65}% ${isDark() ? 68 : 36}%)`;
}
function dash(group) {
  return group.warmup ? DASHES[warmups().indexOf(group.warmup) % DASHES.length] : [6, 4];
}
function sample(stroke, dashes) {  // a piece of a line, for legends
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  svg.setAttribute("class", "key"); svg.setAttribute("viewBox", "0 0 34 12"); svg.setAttribute("aria-hidden", "true");
  for (const [k, v] of Object.entries({ x1: 1, y1: 6, x2: 33, y2: 6, "stroke-width": 2.5, "stroke-dasharray": dashes.join(" ") })) line.setAttribute(k, v);
  line.style.stroke = stroke;
  svg.append(line);
  return svg;
}
const key = group => sample(colour(group), dash(group));
