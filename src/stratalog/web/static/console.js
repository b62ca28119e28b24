// What pages need besides their HTML: they stay fresh, forms answer as one types, the map is zoomed, records come live.
// Everything works without this file too. What comes in is parsed as HTML of this server and never run.
import { drawCharts } from "./charts.js";

const root = document.documentElement;
const main = () => document.getElementById("main");

// --- light and dark ---------------------------------------------------------------------------------------------------

document.getElementById("theme")?.addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("stratalog-theme", root.dataset.theme); } catch { /* it counts for this page then */ }
});

// --- a fresh page, merged into the one that is shown --------------------------------------------------------------------

const keyOf = (node) => (node.nodeType === 1 ? node.dataset?.key || node.id || null : null);
const isAlike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b);

// What is typed in, opened or focused stays; elements stay the same ones, so nothing moves under pointer and keyboard.
function merge(old, fresh) {
  if (old.nodeType !== 1) { if (old.data !== fresh.data) old.data = fresh.data; return; }
  if (old.hasAttribute("data-skip")) return;
  const isInput = ["INPUT", "SELECT", "TEXTAREA", "DETAILS"].includes(old.nodeName);
  for (const { name, value } of fresh.attributes) {
    if (isInput && (name === "value" || name === "open")) continue;
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && !(isInput && name === "open")) old.removeAttribute(name);
  }
  if (old.nodeName === "SELECT" || old.nodeName === "TEXTAREA") return;
  const keyed = new Map();
  for (const child of old.childNodes) { const key = keyOf(child); if (key) keyed.set(key, child); }
  let at = old.firstChild;
  for (const wanted of [...fresh.childNodes]) {
    const key = keyOf(wanted);
    let found = key ? keyed.get(key) : at && !keyOf(at) && isAlike(at, wanted) ? at : null;
    if (found && !isAlike(found, wanted)) found = null;
    if (found) {
      if (found === at) at = at.nextSibling; else old.insertBefore(found, at);
      merge(found, wanted);
    } else {
      old.insertBefore(document.importNode(wanted, true), at);
    }
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

let loading = null;

async function load(url, { push = false, timeout = 9000 } = {}) {
  loading?.abort();
  const control = (loading = new AbortController());
  const timer = setTimeout(() => control.abort(), timeout);
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html", "Stratalog-Refresh": "yes" }, signal: control.signal });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("main");
    if (!fresh || control !== loading) return false;
    if (answer.redirected && new URL(answer.url).pathname === "/login") { location.href = answer.url; return false; }
    if (answer.status === 503 && !push) { root.classList.add("stale"); return false; }
    root.classList.remove("stale");
    if (push) history.replaceState(null, "", url);
    const rates = page.getElementById("rates"), shown = document.getElementById("rates");
    if (rates && shown) shown.textContent = rates.textContent;
    merge(main(), fresh);
    if (page.title) document.title = page.title;
    decorate();
    return true;
  } catch {
    if (control === loading) root.classList.add("stale");
    return false;
  } finally {
    clearTimeout(timer);
    if (control === loading) loading = null;
  }
}

async function stayFresh() {
  for (;;) {
    const every = Number(main().dataset.live || 0);
    await new Promise((done) => setTimeout(done, every || 1000));
    if (!every || document.hidden || picking || loading) continue;
    await load(location.href);
  }
}

// --- forms that answer as one types -------------------------------------------------------------------------------------

let typing = 0;

function address(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
  const text = query.toString();
  return location.pathname + (text ? `?${text}` : "");
}

document.addEventListener("input", (event) => {
  const range = event.target.closest("input[type=range][data-for]");
  if (range) fromSlider(range);
  const form = event.target.closest("form[data-auto]");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => load(address(form), { push: true }), 250);
});

document.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-auto]");
  if (!form) return;
  event.preventDefault();
  clearTimeout(typing);
  load(address(form), { push: true });
});

// --- what-if sliders ----------------------------------------------------------------------------------------------------
// 0 to 100 is one minute to ten years, or a megabyte to a hundred terabytes, each step a factor.

const BOUNDS = { ms: [60e3, 315576e6], bytes: [2 ** 20, 100 * 2 ** 40] };

function fromSlider(range) {
  const [low, high] = BOUNDS[range.dataset.kind];
  const value = Math.round(low * (high / low) ** (range.value / 100));
  range.form.elements[range.dataset.for].value = value;
}

function placeSliders() {
  for (const range of document.querySelectorAll("input[type=range][data-for]")) {
    if (range === document.activeElement) continue;
    const [low, high] = BOUNDS[range.dataset.kind];
    const value = Number(range.form.elements[range.dataset.for].value || range.dataset.now);
    const place = value <= 0 ? (value < 0 ? 100 : 0) : (100 * Math.log(value / low)) / Math.log(high / low);
    range.value = Math.min(Math.max(place, 0), 100);
  }
}

// --- the segment map ----------------------------------------------------------------------------------------------------

let picking = null;

document.addEventListener("pointerdown", (event) => {
  const lane = event.target.closest("svg[data-lane]");
  if (!lane || event.button !== 0 || event.pointerType === "touch") return;
  picking = { lane, from: event.clientX, to: event.clientX, mark: null };
});
document.addEventListener("pointermove", (event) => {
  showTip(event);
  if (!picking) return;
  picking.to = event.clientX;
  if (Math.abs(picking.to - picking.from) < 6) return;
  const map = picking.lane.closest(".map"), box = map.getBoundingClientRect(), lane = picking.lane.getBoundingClientRect();
  if (!picking.mark) { picking.mark = document.createElement("div"); picking.mark.className = "picked"; map.append(picking.mark); }
  const inside = (x) => Math.min(Math.max(x, lane.left), lane.right);
  const [left, right] = [inside(Math.min(picking.from, picking.to)), inside(Math.max(picking.from, picking.to))];
  picking.mark.style.left = `${left - box.left}px`;
  picking.mark.style.width = `${right - left}px`;
});
document.addEventListener("pointerup", () => {
  const picked = picking;
  picking = null;
  if (!picked?.mark) return;
  picked.mark.remove();
  addEventListener("click", (event) => { event.preventDefault(); event.stopPropagation(); }, { capture: true, once: true });
  setTimeout(() => zoom(picked), 0);
});

function zoom({ lane, from, to }) {
  const map = lane.closest(".map"), box = lane.getBoundingClientRect();
  const { axis } = map.dataset, low = Number(map.dataset.low), high = Number(map.dataset.high);
  const at = (x) => low + (Math.min(Math.max((x - box.left) / box.width, 0), 1)) * (high - low);
  const [first, last] = [at(Math.min(from, to)), at(Math.max(from, to))].map(Math.round);
  const url = new URL(location.href), query = url.searchParams;
  for (const name of ["since", "until", "first", "last"]) query.delete(name);
  if (axis === "size") query.set("axis", "offset");
  if (axis === "time") { query.set("since", first); query.set("until", last); }
  else if (axis === "offset") { query.set("first", first); query.set("last", last); }
  else return;
  location.assign(url);
}
document.addEventListener("dragstart", (event) => { if (event.target.closest?.("svg[data-lane]")) event.preventDefault(); });

let tip = null;

function showTip(event) {
  const block = event.target.closest?.(".map rect, .timeline rect");
  if (!block) { tip?.remove(); tip = null; return; }
  let title = block.querySelector("title");
  if (title) { block.dataset.tip = title.textContent; title.remove(); }
  if (!tip) { tip = document.createElement("div"); tip.className = "tip"; tip.setAttribute("role", "tooltip"); document.body.append(tip); }
  tip.textContent = block.dataset.tip || "";
  const width = Math.min(tip.offsetWidth, innerWidth - 20);
  tip.style.left = `${Math.min(Math.max(event.clientX + 12, 8), innerWidth - width - 8)}px`;
  tip.style.top = `${Math.max(event.clientY - tip.offsetHeight - 12, 8)}px`;
}

// --- records as they come -----------------------------------------------------------------------------------------------

const SHOWN_MAX = 500;
let live = false;

document.addEventListener("click", (event) => {
  const button = event.target.closest("#live");
  if (!button) return;
  live = !live;
  button.setAttribute("aria-pressed", String(live));
  button.textContent = live ? "❚❚ Pause" : "▶ Live";
  if (live) follow(button);
});

async function follow(button) {
  let came = 0;
  const note = document.getElementById("live-note"), list = document.getElementById("records");
  while (live) {
    const url = new URL(address(button.form), location.href);
    url.searchParams.set("cursor", button.dataset.cursor);
    try {
      const answer = await fetch(url);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("live");
      if (!answer.ok || !next) { note.textContent = `The broker returned ${answer.status}; retrying.`; }
      else {
        button.dataset.cursor = next.dataset.cursor;
        const fresh = [...page.querySelectorAll("#records > .record")];
        list.querySelector(".empty")?.remove();
        for (const each of fresh.reverse()) {
          const made = document.importNode(each, true);
          made.classList.add("fresh");
          list.prepend(made);
        }
        while (list.children.length > SHOWN_MAX) list.lastChild.remove();
        came += fresh.length;
        note.textContent = `Live: ${came} record${came === 1 ? "" : "s"} since then.`;
      }
    } catch { note.textContent = "The broker does not respond; retrying."; }
    await new Promise((done) => setTimeout(done, 1000));
  }
  note.textContent = `Paused; ${came} record${came === 1 ? "" : "s"}.`;
}

// --- keyboard -----------------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) return;
  const search = document.querySelector("main input[type=search]");
  if (search) { event.preventDefault(); search.focus(); search.select(); }
});

function decorate() {
  drawCharts();
  placeSliders();
}

decorate();
addEventListener("resize", () => drawCharts());
stayFresh();
