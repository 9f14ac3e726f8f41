(() => {
  const root = document.documentElement;
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.getElementById("theme").addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; });
  const source = document.getElementById("timeline");
  if (!source) return;
  const { times, names, values } = JSON.parse(source.textContent);
  const plot = document.querySelector(".plot"), tip = plot.querySelector(".tip");
  const first = times[0], span = Math.max(times[times.length - 1] - first, 1);
  plot.addEventListener("mousemove", (event) => {
    const chart = [...plot.querySelectorAll("svg")].find((drawn) => drawn.getBoundingClientRect().width); // the style sheet hides the other
    const { left, right, width } = Object.fromEntries(Object.entries(chart.dataset).map(([k, v]) => [k, Number(v)]));
    const box = chart.getBoundingClientRect(), scale = width / box.width, cursor = chart.querySelector(".cursor");
    const moment = first + span * ((event.clientX - box.left) * scale - left) / (width - left - right);
    let index = times.findIndex((time) => time >= moment);
    if (index < 0) index = times.length - 1;
    if (index > 0 && moment - times[index - 1] < times[index] - moment) index -= 1;
    const x = left + (width - left - right) * (times[index] - first) / span;
    cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.removeAttribute("hidden");
    const time = new Date(times[index] * 1000).toISOString().slice(0, 16).replace("T", " ");
    tip.textContent = [time + " UTC", ...names.map((name, n) => name + ": " + values[index][n].toLocaleString("en"))].join("\n");
    tip.hidden = false;
    const at = x / scale, room = box.width - at;
    tip.style.left = room > tip.offsetWidth + 24 ? at + 14 + "px" : Math.max(0, at - tip.offsetWidth - 14) + "px";
  });
  plot.addEventListener("mouseleave", () => { tip.hidden = true; plot.querySelectorAll(".cursor").forEach((cursor) => cursor.setAttribute("hidden", "hidden")); });
})();
