"use strict";
// Asks for api/topics every few seconds and shows it. Text comes in by textContent alone: names are other people's.

const EVERY_MS = 2000;
const GIVE_UP_MS = 8000;
const COLUMNS = [
  ["partition", (p) => p.partition],
  ["log start", (p) => p.logStartOffset],
  ["local start", (p) => p.localLogStartOffset],
  ["high watermark", (p) => p.highWatermark],
  ["local segments", (p) => p.segments],
  ["local", (p) => bytes(p.localBytes)],
  ["remote", (p) => (p.reason === null ? "–" : bytes(p.remoteBytes))],
  ["to upload", (p) => (p.reason === null ? "–" : toUpload(p))],
];
// The element of each topic, for as long as there is one: what was opened stays open, also while it is filtered out.
const elements = new Map();
let shown = null;

const byId = (id) => document.getElementById(id);

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (count >= 1024 && at < units.length - 1) { count /= 1024; at += 1; }
  return `${at && count < 100 ? count.toFixed(1) : Math.round(count)} ${units[at]}`;
}

function span(ms) {
  if (ms < 0) return "for ever";
  for (const [unit, length] of [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]]) {
    if (ms >= length) return `${+(ms / length).toFixed(1)} ${unit}`;
  }
  return `${ms} ms`;
}

const toUpload = (p) => (p.lagSegments ? `${bytes(p.lagBytes)} in ${p.lagSegments} segment${p.lagSegments === 1 ? "" : "s"}` : "0");

function limits(ms, size) {
  return size < 0 ? span(ms) : `${span(ms)} or ${bytes(size)}`;
}

function retention(topic) {
  if (topic.policy === "compact") return "compacted";
  const all = limits(topic.retentionMs, topic.retentionBytes);
  if (!topic.tiered) return `${topic.policy}, ${all}`;
  return `${topic.policy}, ${all}; local ${limits(topic.localRetentionMs, topic.localRetentionBytes)}`;
}

function stateOf(topic) {
  if (topic.isFailing) return ["failing", "bad"];
  if (!topic.partitions.some((p) => p.reason !== null)) return ["local", ""];
  if (topic.lagBytes) return [topic.partitions.find((p) => p.lagBytes).reason, "wait"];
  return ["tiered", "good"];
}

function sized(label, value) {
  const cell = element("span", "number");
  cell.append(element("small", "", `${label} `), value);
  return cell;
}

function summaryOf(topic, largest) {
  const line = element("summary");
  const [word, kind] = stateOf(topic);
  line.append(element("span", "name", topic.name), element("span", "policy", retention(topic)),
    sized("local", bytes(topic.localBytes)), sized("remote", bytes(topic.remoteBytes)),
    sized("to upload", bytes(topic.lagBytes)), element("span", `badge state ${kind}`, word));
  const bar = element("span", "bar");
  for (const [name, size] of [["local", topic.localBytes], ["remote", topic.remoteBytes]]) {
    const part = element("i", name);
    part.style.width = `${(100 * size) / largest}%`;
    bar.append(part);
  }
  line.append(bar);
  return line;
}

function rowOf(partition) {
  const row = element("tr", partition.isFailing ? "failing" : "");
  for (const [name, read] of COLUMNS) {
    const cell = element("td", "", String(read(partition)));
    cell.dataset.name = name;
    row.append(cell);
  }
  const why = element("td", "words", [partition.text, ...partition.failures].filter(Boolean).join("; ") || "not tiered");
  why.dataset.name = "why";
  row.append(why);
  return row;
}

function tableOf(topic) {
  const table = element("table");
  const head = element("tr");
  for (const [name] of COLUMNS) head.append(element("th", "", name));
  head.append(element("th", "words", "why it is where it is"));
  const body = element("tbody");
  body.append(...topic.partitions.map(rowOf));
  table.append(element("thead"), body);
  table.tHead.append(head);
  const scroll = element("div", "scroll");
  scroll.append(table);
  return scroll;
}

// Makes an element what another one is, in place: one that is replaced loses the click that has begun on it, the focus, and
// the text that is selected.
function become(old, made) {
  if (old.nodeName !== made.nodeName) { old.replaceWith(made); return; }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  for (const name of old.getAttributeNames()) if (!made.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of made.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style") old.style.cssText = value; // as an attribute the page's content security policy refuses it
    else old.setAttribute(name, value);
  }
  while (old.childNodes.length > made.childNodes.length) old.lastChild.remove();
  [...made.childNodes].forEach((child, at) => {
    at < old.childNodes.length ? become(old.childNodes[at], child) : old.append(child);
  });
}

function newTopic(name) {
  const details = element("details");
  details.dataset.topic = name;
  details.append(element("summary"));
  details.addEventListener("toggle", () => showPartitions(details));
  return details;
}

// A table is made when it is looked at for the first time, and kept.
function showPartitions(details) {
  const topic = shown.topics.find((t) => t.name === details.dataset.topic);
  if (topic === undefined || !details.open) return;
  details.children.length === 1 ? details.append(tableOf(topic)) : become(details.lastChild, tableOf(topic));
}

function topicOf(topic, largest) {
  if (!elements.has(topic.name)) elements.set(topic.name, newTopic(topic.name));
  const details = elements.get(topic.name);
  become(details.firstChild, summaryOf(topic, largest));
  showPartitions(details);
  return details;
}

function showTopics(topics, largest) {
  const names = new Set(shown.topics.map((t) => t.name));
  for (const name of elements.keys()) if (!names.has(name)) elements.delete(name);
  const wanted = topics.map((topic) => topicOf(topic, largest));
  const staying = new Set(wanted);
  const list = byId("topics");
  for (const child of [...list.children]) if (!staying.has(child)) child.remove();
  let next = list.firstChild;
  for (const details of wanted) {
    if (details === next) next = next.nextSibling;
    else list.insertBefore(details, next);
  }
}

function showTotals(topics) {
  const sum = (read) => topics.reduce((total, topic) => total + read(topic), 0);
  const failing = topics.flatMap((topic) => topic.partitions).filter((p) => p.isFailing).length;
  const facts = [
    ["topics", topics.length], ["partitions", sum((t) => t.partitions.length)],
    ["local", bytes(sum((t) => t.localBytes))], ["remote", bytes(sum((t) => t.remoteBytes))],
    ["to upload", bytes(sum((t) => t.lagBytes))], ["failing", failing],
  ];
  byId("totals").replaceChildren(...facts.map(([name, value]) => {
    const box = element("div");
    box.append(element("dt", "", name), element("dd", name === "failing" && value ? "failing" : "", String(value)));
    return box;
  }));
}

function show() {
  if (shown === null) return;
  const wanted = byId("filter").value.trim().toLowerCase();
  const topics = shown.topics.filter((t) =>
    (byId("internal").checked || !t.internal) && t.name.toLowerCase().includes(wanted));
  const largest = Math.max(1, ...topics.map((t) => t.localBytes + t.remoteBytes));
  byId("where").textContent = `broker ${shown.nodeId} of cluster ${shown.clusterId}`;
  showTotals(topics);
  const offline = Object.entries(shown.offlineDirectories).map(([path, why]) => `${path} is offline: ${why}`);
  byId("trouble").hidden = offline.length === 0;
  byId("trouble").textContent = offline.join("; ");
  showTopics(topics, largest);
  byId("none").hidden = topics.length > 0;
}

function showLive(word, kind) {
  byId("live").textContent = word;
  byId("live").className = `badge ${kind}`;
}

async function refresh() {
  try {
    const answer = await fetch("api/topics", { signal: AbortSignal.timeout(GIVE_UP_MS) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    shown = await answer.json();
    showLive("live", "good");
    show();
  } catch (error) {
    showLive(`no answer (${error.message})`, "bad");
  }
  setTimeout(refresh, EVERY_MS);
}

byId("filter").addEventListener("input", show);
byId("internal").addEventListener("change", show);
refresh();
