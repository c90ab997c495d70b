// The start, and what comes from outside the page: its size, the system's theme, the address, the printer.

function everything() {
  theme(); summary(); controls(); legend(); results(); claims(); costs(); compare(); runList(); render(); press();
}
loadView();
everything();
startWatching();

$("theme").addEventListener("change", () => { view.theme = $("theme").value; saveView(); everything(); });
for (const id of ["kind", "quantity", "module"]) $(id).addEventListener("change", () => { view[id] = $(id).value; changed(); });
$("decoding").addEventListener("change", () => { view.decoding = $("decoding").value; choose(view.compare); });
addEventListener("hashchange", () => { loadView(); everything(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", everything);
let waiting = 0, width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === width) return;  // a bar that comes and goes on a phone changes the height alone
  width = innerWidth;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(render);
});
let before = null;  // paper is light
addEventListener("beforeprint", () => { before = view.theme; view.theme = "light"; printing = true; everything(); });
addEventListener("afterprint", () => { if (before !== null) { view.theme = before; before = null; printing = false; everything(); } });
document.documentElement.dataset.ready = String(Math.round(performance.now()));
