// Keeps the page live: replaces the sections that changed, draws the charts, presses the buttons.
"use strict";
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const page = document.body.dataset.page;

// ---- charts
let samples = JSON.parse($("history")?.textContent || "[]");
const charts = [];
const LIMIT = 900;

const time = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

function makeChart(id, series) {
  const element = $(id);
  if (!element) return;
  const axis = () => ({ stroke: css("--muted"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" });
  const width = () => Math.max(200, element.clientWidth);
  const plot = new uPlot({
    width: width(), height: 150,
    legend: { live: true }, cursor: { y: false }, scales: { y: { range: (_u, _min, max) => [0, Math.max(1, (max || 0) * 1.1)] } },
    axes: [{ ...axis(), space: 80, size: 28, values: (_u, ticks) => ticks.map(time) }, { ...axis(), size: 44, values: (_u, ticks) => ticks.map((v) => v >= 1e6 ? v / 1e6 + "M" : v >= 1e4 ? v / 1e3 + "k" : v) }],
    series: [{ label: "", value: (_u, v) => v == null ? "" : time(v) },
      ...series.map((s) => ({ label: s.label, stroke: css(s.colour), fill: s.fill && css(s.fill), width: 2, points: { show: false }, spanGaps: !!s.fill,
        value: (_u, v) => v == null ? "" : v.toLocaleString("en", { maximumFractionDigits: 1 }) }))],
  }, [[]], element);
  charts.push({ plot, columns: series.map((s) => s.column), width });
}

function draw() {
  for (const { plot, columns } of charts)
    plot.setData([samples.map((s) => s[0]), ...columns.map((c) => samples.map((s) => s[c]))]);
}

function makeCharts() {
  for (const { plot } of charts.splice(0)) plot.destroy();
  makeChart("chart-backlog", [{ label: "messages", column: 1, colour: "--warn", fill: "--warn-fill" }]);
  makeChart("chart-rates", [
    { label: "to primary", column: 2, colour: "--good" },
    { label: "to backlog", column: 3, colour: "--warn" },
    { label: "drained", column: 4, colour: "--accent" }]);
  draw();
}
makeCharts();
addEventListener("resize", () => charts.forEach(({ plot, width }) => plot.setSize({ width: width(), height: 150 })));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", makeCharts);

// ---- news
function replace(id, html) {
  const section = $(id);
  if (!section) return;
  const active = document.activeElement;
  const focused = section.contains(active) ? active.id : "";
  section.innerHTML = html;
  // Pause becomes resume: the keyboard stays where it was.
  if (focused) ($(focused) || section.querySelector("button"))?.focus();
}

const live = $("live");
function setLive(state, text) { live.dataset.state = state; live.lastElementChild.textContent = text; }

const entity = new URLSearchParams(location.search).get("entity") || "";
const address = "/stream?page=" + page + "&entity=" + encodeURIComponent(entity);
const source = page ? new EventSource(address) : { close() {} }; // a page that was not found has no news
source.onmessage = (event) => {
  const news = JSON.parse(event.data);
  for (const [id, html] of Object.entries(news.sections)) replace(id, html);
  const headline = document.querySelector("#banner h1");
  if (headline) document.title = headline.textContent + " · pairbus";
  for (const sample of news.samples)
    if (!samples.length || sample[0] > samples[samples.length - 1][0]) samples.push(sample);
  samples = samples.slice(-LIMIT);
  draw();
  setLive("live", "live");
};
if (!page) setLive("waiting", "");
source.onerror = () => setLive("lost", "reconnecting");
addEventListener("pagehide", () => source.close());

// ---- buttons
function toast(text) {
  const element = $("toast");
  element.textContent = text;
  element.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { element.hidden = true; }, 6000);
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-action]");
  if (!button || button.ariaBusy === "true") return;
  button.ariaBusy = "true"; // and not disabled: that would take the focus away
  try {
    const csrf = document.querySelector("meta[name=pairbus-csrf]").content;
    const answer = await fetch(button.dataset.action, { method: "POST", headers: { "x-pairbus-csrf": csrf } });
    const data = await answer.json();
    toast(answer.ok ? (data.paused ? "Paused: the syphon finishes what it has in hand." : "Resumed.") : data.error);
  } catch {
    toast("The page's server did not answer.");
  }
  button.ariaBusy = "false";
});

// ---- theme and keyboard
function switchTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("pairbus-theme", root.dataset.theme);
  makeCharts();
}
$("theme").addEventListener("click", switchTheme);
$("keys").addEventListener("click", () => $("help").showModal());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const go = { o: "/", e: "/events", c: "/cost" }[event.key];
  if (go) location.href = go;
  else if (event.key === "t") switchTheme();
  else if (event.key === "p") document.querySelector("button[data-action]")?.focus();
  else if (event.key === "?") $("help").showModal();
});
