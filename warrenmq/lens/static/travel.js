// What travels in a row: an arrow from one anchor to another that stays, and a dot that runs along it once.
import { patch, plain } from "./dom.js";

const calm = matchMedia("(prefers-reduced-motion: reduce)");
let frame = 0;

const visible = (found) => (found && found.getClientRects().length ? found : null);
const at = (anchor) => visible(document.querySelector(`[data-a="${CSS.escape(anchor)}"]`));

// the element of an anchor, or of the nearest thing around it that is shown
export function find(anchor, T) {
  const found = at(anchor);
  if (found?.matches(".end")) return visible(found.querySelector(".big")) ?? found;
  if (found?.classList.contains("box")) return found.querySelector(".mail.foc") ?? found.firstElementChild ?? found;
  if (found || !anchor) return found;
  const [kind, ...rest] = anchor.split("/");
  if (kind === "box") {
    for (const [table, name] of [[T.queue, "queue"], [T.store, "store"]]) {
      for (const [key, value] of table) if (value[0] === +rest[0]) { const lane = visible(document.querySelector(`[data-a="${name}/${CSS.escape(key)}"] :is(h2, h3)`)); if (lane) return lane; }
    }
    return at("act/" + rest[0]);
  }
  if (kind === "entry") return at("queue/" + rest.slice(0, -1).join("/"));
  if (kind === "rec") return visible(document.querySelector(`[data-a="file/${rest[0]}/${rest[1]}"] .map`)) ?? at("store/" + rest[0]);
  if (kind === "pub" || kind === "con" || kind === "flying" || kind === "cache") return kind === anchor ? null : find(kind, T);
  return null;
}

function middle(found) {
  const box = found.getBoundingClientRect();
  return { x: box.left + box.width / 2, y: box.top + box.height / 2 };
}

// from edge to edge: side by side things are joined sideways or by a bow above them, others by a curve that leaves and arrives upright
function way(from, to, a, b, sideways) {
  const level = Math.abs(a.y - b.y) < (from.height + to.height) / 2;
  if (sideways || level && (from.width > 300 || to.width > 300 || from.height < 30 || to.height < 30 || Math.abs(a.x - b.x) > 420) && Math.abs(a.x - b.x) > (from.width + to.width) / 2) {
    const right = b.x > a.x, x1 = right ? from.right : from.left, x2 = right ? to.left - 2 : to.right + 2, h = (x2 - x1) / 2;
    a.x = x1; b.x = x2;
    return `M${x1} ${a.y}C${x1 + h} ${a.y} ${x2 - h} ${b.y} ${x2} ${b.y}`;
  }
  if (level) {
    const y1 = from.top, y2 = to.top - 1, up = Math.min(y1, y2) - 20 - Math.abs(a.x - b.x) * 0.06;
    a.y = y1; b.y = y2;
    return `M${a.x} ${y1}C${a.x} ${up} ${b.x} ${up} ${b.x} ${y2}`;
  }
  const down = b.y > a.y, y1 = down ? from.bottom : from.top, y2 = down ? to.top - 1 : to.bottom + 1;
  a.y = y1; b.y = y2;
  const h = Math.max(14, Math.abs(y2 - y1) * 0.5) * (down ? 1 : -1);
  return `M${a.x} ${y1}C${a.x} ${y1 + h} ${b.x} ${y2 - h} ${b.x} ${y2}`;
}

// by way of a third thing, from edge to edge of it
function through(from, by, to, a, b) {
  const wide = innerWidth > 720, box = by.getBoundingClientRect(), p = middle(by), q = { ...p };
  const first = way(from.getBoundingClientRect(), box, a, p, wide), second = way(box, to.getBoundingClientRect(), q, b, wide);
  return first + second;
}

const make = (svg, tag, set) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const each in set) made.setAttribute(each, set[each]);
  svg.append(made);
  return made;
};

export function travel(svg, row, T, { moving, fast }) {
  cancelAnimationFrame(frame);
  patch(svg, []);
  if (!row?.move) return;
  const out = row.move.some((anchor) => /^(pub|con)(\/|$)/.test(anchor));  // to and from the outside: only as far as the queue's edge
  const ends = row.move.map((anchor) => find(anchor, T)).map((found, _, all) => ((out || all.length > 2) && found?.closest(".queue")) || found), from = ends[0], to = ends.at(-1), by = ends.length > 2 ? ends[1] : null;
  if (!from || !to || from === to) return;
  if (moving && innerWidth < 721) (/^(pub|con)/.test(row.move.at(-1)) ? from : to).scrollIntoView({ block: "center", behavior: "instant" });
  const floor = document.querySelector(".deck").getBoundingClientRect().top, page = document.querySelector(".machine").getBoundingClientRect();
  const a = middle(from), b = middle(to), shown = (p) => p.y > page.top - 20 && p.y < floor - 4;
  if (!shown(a) && !shown(b)) return;
  const d = by ? through(from, by, to, a, b) : way(from.getBoundingClientRect(), to.getBoundingClientRect(), a, b, out && innerWidth > 720);
  make(svg, "path", { class: "halo", d });
  const path = make(svg, "path", { class: "trail", d }), length = path.getTotalLength(), end = path.getPointAtLength(Math.max(0, length - 7));
  make(svg, "circle", { class: "source", cx: a.x, cy: a.y, r: 3 });
  const tip = make(svg, "path", { class: "tip", d: "M-9 -4.5L0 0L-9 4.5Z", transform: `translate(${b.x} ${b.y}) rotate(${Math.atan2(b.y - end.y, b.x - end.x) * 180 / Math.PI})` });
  if (calm.matches || !moving || fast > 4) return;
  const dot = make(svg, "g", { class: "dot" });
  if (row.message) {
    const name = "m" + row.message, wide = Math.max(34, 12 + 8 * name.length);
    make(dot, "rect", { x: -wide / 2, y: -9, width: wide, height: 18, rx: 9 });
    make(dot, "text", { y: 4, "text-anchor": "middle" }).textContent = name;
  } else make(dot, "circle", { r: 5 });
  const time = 520 / Math.max(1, fast), start = performance.now();
  tip.style.opacity = 0;
  const move = (now) => {
    const p = Math.min(1, (now - start) / time), eased = 1 - (1 - p) ** 3, place = path.getPointAtLength(length * eased);
    dot.setAttribute("transform", `translate(${place.x} ${place.y})`);
    path.style.strokeDasharray = `${length * eased} ${length}`;
    if (p < 1) frame = requestAnimationFrame(move); else { tip.style.opacity = 1; dot.remove(); path.style.strokeDasharray = ""; }
  };
  move(start);
}

// On a phone the two ends are rarely on the screen together: their names, and the message between them.
export function stage(row, T, names) {
  if (!row?.move || !row.move[0]) return null;
  const called = (anchor) => {
    const [kind, ...rest] = anchor.split("/");
    if (kind === "box" || kind === "pub") return rest.length ? plain(names(+rest[0])) : "publisher";
    if (kind === "con") return "consumer";
    if (kind === "exchange") return `exchange ${plain(rest.join("/")) || "default"}`;
    if (kind === "rec") return `${rest[1]}.rdq`;
    if (kind === "flying") return "flying counter";
    if (kind === "cache") return "cache";
    return plain(kind === "entry" ? rest.slice(0, -1).join("/") : rest.join("/"));
  };
  const names_ = row.move.map(called), [from, by] = names_;
  return { from, to: names_.at(-1), by: names_.length > 2 && row.move[1] !== "exchange/" ? by : "", message: row.message ? "m" + row.message : "" };
}
