"use strict";
// The data, how its numbers are written, and the one way to make an element: with text, never with markup.

// Everything shown comes from this one block, and goes to the page as text nodes only.
let DATA = JSON.parse(document.getElementById("data").textContent);
const NONE = "–";

const $ = id => document.getElementById(id);
function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter(c => c !== null && c !== undefined));
  return node;
}

function clock(s) {
  if (s < 60) return `${+s.toFixed(1)} s`;
  if (s % 60 === 0 && s < 3600) return `${s / 60} min`;
  if (s % 3600 === 0) return `${s / 3600} h`;
  if (s < 3600) return `${Math.floor(s / 60)}:${String(Math.floor(s % 60)).padStart(2, "0")} min`;
  return `${Math.floor(s / 3600)}:${String(Math.floor(s % 3600 / 60)).padStart(2, "0")} h`;
}
const whole = v => Math.round(v).toLocaleString("en");
const short = v => v.toLocaleString("en", { notation: "compact", maximumFractionDigits: 2 });
function figure(v) {
  if (v === null || v === undefined) return NONE;
  const size = Math.abs(v);
  if (size !== 0 && (size < 0.001 || size >= 1e6)) return v.toExponential(2).replace("e+", "e");
  return size < 0.1 ? v.toPrecision(3) : size < 100 ? v.toFixed(2) : v.toLocaleString("en", { maximumFractionDigits: 1 });
}
function tick(v) {
  if (v === null) return "";
  return v !== 0 && Math.abs(v) < 0.01 ? v.toExponential().replace("e+", "e") : v.toLocaleString("en", { maximumFractionDigits: 3 });
}
function logMarks(low, high) {  // 1, 2, 5 of each decade, only 1 where there are many; less than a decade: even steps
  if (high / low < 8) {
    const rough = (high - low) / 4, unit = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find(n => n * unit >= rough) * unit;
    return Array.from({ length: 12 }, (_, i) => (Math.ceil(low / step) + i) * step).filter(v => v <= high).map(v => +v.toPrecision(12));
  }
  const marks = [];
  for (let k = Math.floor(Math.log10(low)); 10 ** k <= high; k++) for (const n of high / low > 2000 ? [1] : [1, 2, 5]) marks.push(+`${n}e${k}`);
  return marks.filter(v => v >= low && v <= high);
}

// What can stand along the x axis: name, its place on a switch, one value in words, a mark on the axis.
const AXES = [
  ["updates", "updates", v => `update ${whole(v)}`, tick],
  ["epoch", "epochs", v => `epoch ${v.toFixed(2)}`, tick],
  ["wall_s", "wall-clock", clock, clock],
  ["tokens", "tokens", v => `${short(v)} tokens`, short],
];
const integer = v => Number.isInteger(v) ? String(v) : "";
const LAYER = ["layer", "layer", v => `layer ${whole(v)}`, integer], DEPTH = ["layer", "layers of the stack", v => `${whole(v)} layers`, integer];
