// Colour, dash and marker of a configuration come with the data (look.py), so that page and figures agree.

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
const colour = (look, alpha = 1) => (isDark() ? look.dark : look.light) + Math.round(255 * alpha).toString(16).padStart(2, "0");
function depthColour(step) {  // from the first layer (violet) to the last (green)
  return `hsl(${285 - 150 * step} ${isDark() ? 60 : 65}% ${isDark() ? 68 : 36}%)`;
}
const lookLine = (look, name) => ({ label: name, stroke: colour(look), fill: colour(look, 0.17), dash: look.dash, marker: look });
const lookOf = g => ({ group: g, ...lookLine(DATA.groups[g].look, DATA.groups[g].name) });

const CORNERS = {  // of a marker, around its middle, y downwards; a circle has none
  circle: null, triangle: [[0, -1.15], [1.1, 0.85], [-1.1, 0.85]], wedge: [[0, 1.15], [1.1, -0.85], [-1.1, -0.85]],
  diamond: [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]], square: [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]],
};
const svg = (tag, props) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
  return node;
};
function sample({ stroke, dash, marker }) {  // a piece of a line, for legends
  const piece = svg("svg", { class: "key", viewBox: "0 0 34 12", "aria-hidden": "true" });
  const line = svg("line", { x1: 1, y1: 6, x2: 33, y2: 6, "stroke-width": 2.5, "stroke-dasharray": dash.join(" ") });
  line.style.stroke = stroke;
  piece.append(line);
  if (!marker) return piece;
  const corners = CORNERS[marker.shape], place = { cx: 17, cy: 6, r: 3.6, "stroke-width": 1.6 };
  const dot = corners ? svg("polygon", { points: corners.map(([x, y]) => `${17 + 3.6 * x},${6 + 3.6 * y}`).join(" "), "stroke-width": 1.6 }) : svg("circle", place);
  dot.style.stroke = stroke;
  dot.style.fill = marker.hollow ? "var(--card)" : stroke;
  piece.append(dot);
  return piece;
}
const key = group => sample(lookLine(group.look, group.name));
