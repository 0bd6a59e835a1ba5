// The strip: every sync, confirm, cancelled write, file, crash and violation, and where we are.
import { el } from "./dom.js";

const LANES = { sync: 0, confirm: 1, cancel: 2, gc: 3, roll: 3 };
const HEIGHT = 52;
let drawn = { key: "", paths: [] };

function paths(tape, width) {
  const key = `${tape.first}:${tape.last}:${width}`;
  if (drawn.key === key) return drawn.paths;
  const lanes = ["", "", "", ""], seen = new Set(), crashes = new Set(), span = Math.max(1, tape.last - tape.first);
  for (const [row, mark] of tape.marks) {
    const name = tape.head.marks[mark], x = Math.round((row - tape.first) / span * width * 2) / 2, lane = LANES[name];
    if (name === "crash") crashes.add(x);
    else if (lane !== undefined && !seen.has(lane + ":" + x)) { seen.add(lane + ":" + x); lanes[lane] += `M${x} ${4 + lane * 12}v8`; }
  }
  drawn = { key, paths: [...lanes.map((d, i) => el("path.lane.l" + i, { d })),
    ...[...crashes].map((x) => el("path.crash", { d: `M${x} 1V50M${x - 3.5} 1l7 7m0 -7l-7 7` })),
    ...(tape.head.violations ?? []).filter((v) => v.row > tape.first && v.row <= tape.last).map((v) => { const x = (v.row - tape.first) / span * width; return el("path.violation", { d: `M${x - 5} 51h10l-5 -9z` }, el("title", {}, `${v.rule}: ${v.text}`)); })] };
  return drawn.paths;
}

// `scale`: how much larger than on a small screen everything is; what is drawn counts in units of it
export function strip(tape, at, pixels, scale, words, go) {
  const width = pixels / scale;
  const x = (at - tape.first) / Math.max(1, tape.last - tape.first) * width;
  const to = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    go(tape.first + Math.round(Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * (tape.last - tape.first)));
  };
  return el("svg.line", { viewBox: `0 0 ${width} ${HEIGHT}`, width: pixels, height: HEIGHT * scale, role: "slider", tabindex: "0", "aria-label": "row", "aria-valuemin": tape.first, "aria-valuemax": tape.last, "aria-valuenow": at, "aria-valuetext": words,
    on: { pointerdown: (e) => { e.currentTarget.setPointerCapture(e.pointerId); to(e); }, pointermove: (e) => { if (e.buttons & 1) to(e); } } },
    el("rect.past", { x: 0, y: 0, width: Math.max(0, x), height: HEIGHT }), paths(tape, width),
    el("g.head", { transform: `translate(${x} 0)` }, el("path", { d: `M0 0V${HEIGHT}` }), el("circle", { r: 5, cy: 26 })));
}

// of the chapters' numbers: at their rows, but never on top of each other, and none outside the strip
export function places(tape, width, scale) {
  const gap = Math.max(24, 19 * scale), x = tape.head.chapters.map(([row]) => (row - tape.first) / Math.max(1, tape.last - tape.first) * width);
  for (let pass = 0; pass < 40; pass++) {
    for (let i = 1; i < x.length; i++) {
      const lack = gap - (x[i] - x[i - 1]);
      if (lack > 0) { x[i - 1] -= lack / 2; x[i] += lack / 2; }
    }
    if (x.length) { x[0] = Math.max(0, x[0]); x[x.length - 1] = Math.min(width, x[x.length - 1]); }
  }
  return x;
}
