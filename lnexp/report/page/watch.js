// A page from `lnexp dashboard --watch` asks its server for new data, and says when it has none.

const ASK_S = 3;
let stamp = null;

async function ask() {
  const now = () => new Date().toLocaleTimeString();
  try {
    const answer = await fetch("data.json", { cache: "no-store", headers: stamp ? { "If-None-Match": stamp } : {} });
    if (answer.status === 200) {
      const known = stamp;
      stamp = answer.headers.get("ETag");
      DATA = await answer.json();
      if (known !== stamp) refreshed();
    } else if (answer.status !== 304) throw new Error((await answer.text()).slice(0, 300));
    $("alive").textContent = `live, as of ${now()}`;
    $("alive").className = "alive";
  } catch (error) {
    $("alive").textContent = `not live since ${now()}: ${error instanceof TypeError ? "the server does not answer" : error.message}`;
    $("alive").className = "alive lost";
  }
  setTimeout(ask, ASK_S * 1000);
}
function refreshed() {  // whoever is at a control stays there
  const at = document.activeElement && document.activeElement.id;
  everything();
  if (at && $(at)) $(at).focus({ preventScroll: true });
}
function startWatching() {
  if (!DATA.live) return;
  $("kicker").after(el("p", { id: "alive", class: "alive", role: "status" }, "live"));
  ask();
}
