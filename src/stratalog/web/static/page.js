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
const opened = new Set();
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

function topicOf(topic, largest) {
  const details = element("details");
  details.dataset.topic = topic.name;
  details.append(summaryOf(topic, largest));
  const fill = () => { if (details.open && details.children.length === 1) details.append(tableOf(topic)); };
  details.open = opened.has(topic.name);
  fill();
  details.addEventListener("toggle", () => {
    details.open ? opened.add(topic.name) : opened.delete(topic.name);
    fill();
  });
  return details;
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
  const focused = document.activeElement?.closest?.("details")?.dataset.topic;
  byId("topics").replaceChildren(...topics.map((topic) => topicOf(topic, largest)));
  if (focused !== undefined) document.querySelector(`details[data-topic="${CSS.escape(focused)}"] summary`)?.focus();
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
