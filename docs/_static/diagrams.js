// Draw the diagrams in the colours of the page, and again when the reader changes its theme.
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () =>
  document.body.dataset.theme === "dark" || (document.body.dataset.theme !== "light" && system.matches);
const diagrams = [...document.querySelectorAll("pre.mermaid")].map((node) => ({ node, text: node.textContent }));
let drawn = null;

async function draw() {
  const dark = isDark();
  if (dark === drawn) return;
  drawn = dark;
  for (const { node, text } of diagrams) {
    node.removeAttribute("data-processed");
    node.textContent = text;
  }
  const page = getComputedStyle(document.body).getPropertyValue("--color-background-primary").trim();
  mermaid.initialize({
    startOnLoad: false,
    securityLevel: "strict",
    theme: dark ? "dark" : "neutral",
    themeVariables: { edgeLabelBackground: page },
  });
  await mermaid.run({ nodes: diagrams.map(({ node }) => node) });
}

let last = draw();
const redraw = () => { last = last.then(draw); };
new MutationObserver(redraw).observe(document.body, { attributeFilter: ["data-theme"] });
system.addEventListener("change", redraw);
