"""The page around the report: its style and the few lines of script that fit the plots to light or dark."""

from __future__ import annotations

from string import Template

PAGE = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root {
  color-scheme: light dark;
  --page: #f5f6f8; --card: #ffffff; --line: #e2e5ea; --text: #1b2330; --soft: #5d6878; --grid: #eceef2;
  --ok: #1b8057; --ok-back: #e6f5ee; --bad: #c0392b; --bad-back: #fdecea; --open: #a86a00; --open-back: #fdf3e0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #12161c; --card: #1a2028; --line: #2c343f; --text: #e4e8ee; --soft: #98a3b3; --grid: #262e38;
    --ok: #58c796; --ok-back: #16322a; --bad: #f2857a; --bad-back: #3a1f1f; --open: #eab353; --open-back: #362a15;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 32px 24px 64px; max-width: 1320px; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
}
h1 { font-size: 26px; font-weight: 650; margin: 0 0 2px; letter-spacing: -0.01em; }
h2 { font-size: 18px; font-weight: 620; margin: 36px 0 12px; }
h3 { font-size: 15px; font-weight: 620; margin: 0; }
p { margin: 0; }
.soft, .note { color: var(--soft); }
.note { font-size: 13px; margin: 2px 0 6px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px; }
.verdict { margin: 22px 0 14px; padding: 14px 18px; border-radius: 10px; font-size: 17px; font-weight: 600; }
.verdict span { font-weight: 400; }
.verdict.ok { background: var(--ok-back); color: var(--ok); }
.verdict.violated { background: var(--bad-back); color: var(--bad); }
.verdict.indeterminate { background: var(--open-back); color: var(--open); }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; }
.tile { padding: 12px 14px; flex: 1 1 100px; }
.tile b { display: block; white-space: nowrap; font-size: 20px; font-weight: 650; font-variant-numeric: tabular-nums; }
.tile span { color: var(--soft); font-size: 13px; }
.plots { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 14px; }
.plots .wide { grid-column: 1 / -1; }
@media (max-width: 900px) { .plots { grid-template-columns: minmax(0, 1fr); } }
.scroll { overflow-x: auto; }
details.card { margin-top: 8px; }
details summary { cursor: pointer; }
details pre { overflow-x: auto; font-size: 12px; margin: 8px 0 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th { text-align: left; font-weight: 600; color: var(--soft); font-size: 13px; }
th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.over { text-align: center; }
td.rule, td.name { white-space: nowrap; }
td.rule { font: 13px/1.7 ui-monospace, "SF Mono", "DejaVu Sans Mono", monospace; }
td.bad { color: var(--bad); font-weight: 650; }
td.open { color: var(--open); font-weight: 650; }
td.zero { color: var(--soft); }
footer { margin-top: 40px; color: var(--soft); font-size: 13px; }
</style>
</head>
<body>
<header>
<h1>$title</h1>
<p class="soft">$subtitle</p>
</header>
$body
<footer>$footer</footer>
<script>$plotly</script>
<script>
const plots = $plots;
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function themed(layout) {
  const axis = { gridcolor: style("--grid"), zerolinecolor: style("--line"), linecolor: style("--line"), automargin: true };
  const all = {
    height: 330, margin: { l: 56, r: 16, t: 12, b: 44 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: style("--soft") },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12 } },
    hoverlabel: { bgcolor: style("--card"), bordercolor: style("--line"), font: { color: style("--text") } }, bargap: 0.35,
    ...layout,
  };
  for (const name of ["xaxis", "yaxis"]) {
    all[name] = { ...axis, ...layout[name] };
    all[name].title = { standoff: 8, ...all[name].title, font: { size: 12 } };
  }
  return all;
}
function draw() {
  plots.forEach((plot, index) => Plotly.react("plot-" + index, plot.data, themed(plot.layout),
    { responsive: true, displayModeBar: false }));
}
draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
</script>
</body>
</html>
""")
