// The page: where on the tape we are, how we get elsewhere.
//
// A Lens draws one tape into an element.  `options` are what a server adds: bytes(store, file, offset, size) reads a record of a store,
// entry(queue, priority, sequence id, state) those of a message in the index, live() is true while rows come, turn(name of an actor) gives what
// serves its mailbox now, if that can be, and moved(row) hears where we are.
import { el, named, num, patch, plain } from "./dom.js";
import { inspector } from "./inspector.js";
import { cache, costs, flow, flying, grouped, tree } from "./machine.js";
import { stores } from "./stores.js";
import { places, strip } from "./timeline.js";
import { stage, travel } from "./travel.js";

const UNTIL = { sync: "a sync", confirm: "a confirm", cancel: "a cancelled write", roll: "a roll-over", gc: "the collector", crash: "a crash", recovered: "a recovery", alarm: "an alarm" };
const SPEEDS = [0.5, 1, 2, 4, 16, 64];
// the parts of the picture that a lesson may point at
const LOOKS = { tree: ".tree", mail: ".box", publisher: ".end:not(.con)", exchanges: ".exchanges", queue: ".queue", index: ".queue", stores: ".store", flying: ".flying", cache: ".cache", memory: ".queue", alarms: ".alarm" };
const HANDLED = new Set(["RECV", "PUBLISH", "ACK"]);
const KEYS = [["Space", "play, pause"], ["\u2192 \u2190", "next, previous row"], ["Shift + arrow", "next, previous handled message"], ["u, Shift + u", "until the chosen moment, and back"],
  ["j, k", "next, previous row of this process"], ["n, p", "next, previous chapter"], ["v", "next violated rule"], ["f", "follow this row's message, or let it go"], ["w", "why?"], ["i, m", "inspect this row's process, its message"], ["/", "search the captions"],
  ["1 to 9", "a chapter"], ["+ \u2212", "larger, smaller"], ["d", "dark, light"], ["Home, End", "first, last row"], ["Esc", "close, let go"]];
const OVER = "[role=dialog], .search";  // what opens over the page, takes the focus, and gives it back
const FAR = 20_000;  // rows that are looked through for those about a thing

function clock(ns) {
  const s = ns / 1e9;
  return s < 10 ? `${(s * 1000).toFixed(1)} ms` : `${s.toFixed(3)} s`;
}

export class Lens {
  constructor(root, tape, options = {}) {
    this.root = root;
    this.tape = tape;
    this.options = options;
    this.state = { at: tape.first, pinned: 0, playing: false, speed: 1, until: "sync", why: false, keys: false, size: 0, selected: null, search: null, missed: "", look: [] };
    this.unfolded = new Set();
    this.names = Object.fromEntries(tape.head.tables.map((name, i) => [name, i]));
    this.width = 600;
    this.scale = 1;
    this.way = null;
  }

  start() {
    patch(this.root, [el("div.page")]);
    addEventListener("hashchange", () => this.fromHash());
    addEventListener("keydown", (event) => this.key(event));
    this.fromHash(true);
    this.root.querySelector(".machine").addEventListener("scroll", () => this.draw(false), { passive: true });
    new ResizeObserver(() => { this.measure(); }).observe(document.body);
    this.measure();
    document.body.dataset.ready = "1";
    this.warm();
    return this;
  }

  // visit the whole tape once while nobody looks, so that every later jump is short
  warm() {
    const { tape } = this, idle = globalThis.requestIdleCallback ?? ((f) => setTimeout(() => f({ timeRemaining: () => 8 }), 16));
    const scout = Object.assign(Object.create(Object.getPrototypeOf(tape)), tape, { at: tape.first, tables: tape.stops[0][1].map((table) => new Map(table)), undo: new Map() });
    const on = (deadline) => {
      do {
        for (let i = 0; i < 100 && scout.at < tape.last; i++) { scout.decoded = tape.decoded; scout.forward(); tape.decoded = scout.decoded; }
        scout.undo.clear();
      } while (scout.at < tape.last && deadline.timeRemaining() > 3);
      if (scout.at < tape.last && scout.at < tape.first + 400_000) idle(on); else document.body.dataset.warm = "1";
    };
    idle(on);
  }

  measure() {
    const strip_ = this.root.querySelector(".strip");
    const size = parseFloat(getComputedStyle(document.documentElement).fontSize), scale = Math.max(1, Math.min(3, size / 15));
    const width = strip_ ? Math.max(160, Math.floor(strip_.clientWidth)) : 600;
    document.documentElement.style.setProperty("--strip", scale);
    if (width !== this.width || scale !== this.scale) { this.width = width; this.scale = scale; this.render(false); } else this.draw(false);
  }

  // -- where we are

  fromHash(first = false) {
    if (this.written === location.hash && !first) return;
    this.written = location.hash;
    const hash = new URLSearchParams(location.hash.slice(1)), [kind, ...id] = (hash.get("sel") ?? "").split(":"), chosen = id.join(":");
    const selected = ["actor", "message", "record", "file", "entry"].includes(kind) && chosen ? { kind, id: kind === "actor" || kind === "message" ? +chosen : chosen } : null;
    const look = (hash.get("look") ?? "").split(",").filter((part) => LOOKS[part]);
    this.show(+hash.get("row") || this.tape.first + 1, { pinned: +hash.get("m") || 0, selected, look });
  }

  toHash(push) {
    const { at, pinned, selected } = this.state;
    if (location.hash !== this.written) return;  // somebody has just set it; the event comes
    const hash = `#row=${at}${pinned ? "&m=" + pinned : ""}${selected ? `&sel=${encodeURIComponent(selected.kind + ":" + selected.id)}` : ""}`;
    try { if (push) history.pushState(null, "", hash); else history.replaceState(null, "", hash); } catch { /* a frame without an address */ }
    this.written = location.hash;
  }

  show(row, more = {}, push = false, moving = true) {
    this.tape.seek(Math.max(Math.min(this.tape.first + 1, this.tape.last), row));
    Object.assign(this.state, { at: this.tape.at, look: [] }, more);
    this.render(moving);
    clearTimeout(this.late);
    this.late = setTimeout(() => this.toHash(push), push ? 0 : 150);
    this.options.moved?.(this.state.at);
  }

  go = (row, push = true) => this.show(row, { playing: false, why: false }, push);
  scrub = (row) => {  // one picture a frame, however many moves
    cancelAnimationFrame(this.soon);
    this.soon = requestAnimationFrame(() => this.show(row, { playing: false, why: false }, false, false));
  };
  select = (selected) => { this.state.selected = selected; this.toHash(false); this.render(false); this.focus(".inspector"); };
  focus(dialog) {
    const opened = this.root.querySelector(dialog), from = document.activeElement;
    if (!opened) return;
    if (from !== document.body && !opened.contains(from)) opened.$opener = from;
    (opened.querySelector("input") ?? opened).focus({ preventScroll: true });
  }
  pick = (message) => { this.state.pinned = this.state.pinned === message ? 0 : message; this.toHash(false); this.render(false); };
  grow(more) {  // rows that came, from a feed
    const { tape } = this;
    tape.add(more.n, more.text, more.fresh);
    tape.mark(more.marked);
    Object.assign(tape.head, { runs: more.runs, chapters: more.chapters, violations: more.violations });
  }

  step(way, unit) {
    const { tape } = this, { at } = this.state, events = tape.head.events;
    const to = {
      row: () => at + way,
      message: () => tape.next(at, way, (row) => HANDLED.has(events[tape.row(row).event])),
      until: () => tape.marked(at, way, tape.head.marks.indexOf(this.state.until)),
      actor: () => { const me = tape.row(at).actor; return tape.next(at, way, (row) => tape.row(row).actor === me); },
      chapter: () => { const rows = tape.head.chapters.map((c) => c[0]); return (way > 0 ? rows.find((row) => row > at) : rows.filter((row) => row < at).pop()) ?? at; },
      violation: () => { const rows = (tape.head.violations ?? []).map((v) => v.row).sort((x, y) => x - y); return rows.find((row) => row > at) ?? rows[0] ?? at; },
    }[unit]();
    if (to) this.show(to, { playing: false }, unit !== "row");
  }

  play = () => {
    this.state.playing = !this.state.playing;
    this.state.why = false;
    clearTimeout(this.timer);
    const tick = () => {
      if (!this.state.playing) return;
      if (this.state.at >= this.tape.last && !this.options.live?.()) { this.state.playing = false; this.render(false); return; }
      const { speed } = this.state, rows = Math.max(1, Math.round(speed / 8));
      this.show(this.state.at + rows);
      this.timer = setTimeout(tick, Math.max(30, (this.tape.row(this.state.at).move ? 900 : 500) / speed * rows));
    };
    if (this.state.playing) this.timer = setTimeout(tick, 60);
    this.render(false);
  };

  toggle(what) { this.state[what] = !this.state[what]; this.render(false); this.focus("." + what); }

  theme = () => {
    const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    this.draw(false);
  };

  resize(by) {
    this.state.size = Math.max(-3, Math.min(10, this.state.size + by));
    document.documentElement.style.setProperty("--zoom", 1 + this.state.size * 0.12);
    this.measure();
  }

  search(text, way = 1) {
    this.state.search = text;
    const wanted = text.trim().toLowerCase();
    const found = wanted && this.tape.next(this.state.at, way, (row) => this.words(row).toLowerCase().includes(wanted));
    this.state.missed = wanted && !found ? `no ${way > 0 ? "later" : "earlier"} row says so` : "";
    if (found) this.show(found, { playing: false }, true); else this.render(false);
    return found;
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const k = event.key, row = event.shiftKey ? "message" : "row";
    if (["SELECT", "INPUT", "TEXTAREA"].includes(event.target.tagName)) { if (k === "Escape") { this.state.search = null; this.render(false); if (event.target.isConnected) event.target.blur(); } return; }
    const act = {
      " ": this.play, ArrowRight: () => this.step(1, row), ArrowLeft: () => this.step(-1, row), Home: () => this.go(this.tape.first + 1), End: () => this.go(this.tape.last),
      u: () => this.step(1, "until"), U: () => this.step(-1, "until"), j: () => this.step(1, "actor"), k: () => this.step(-1, "actor"), n: () => this.step(1, "chapter"), p: () => this.step(-1, "chapter"), v: () => this.step(1, "violation"),
      w: () => this.toggle("why"), f: () => this.pick(this.state.pinned || this.tape.row(this.state.at).message), d: this.theme, "?": () => this.toggle("keys"), i: () => this.select(this.state.selected ? null : { kind: "actor", id: this.tape.row(this.state.at).actor }),
      m: () => { const { message } = this.tape.row(this.state.at); if (message) this.select({ kind: "message", id: message }); },
      "/": () => { Object.assign(this.state, { search: "", missed: "" }); this.render(false); this.focus(".search"); },
      "+": () => this.resize(1), "=": () => this.resize(1), "-": () => this.resize(-1), Escape: () => { Object.assign(this.state, { why: false, keys: false, pinned: 0, selected: null, search: null }); this.toHash(false); this.render(false); },
    }[k] ?? (/^[1-9]$/.test(k) && this.tape.head.chapters[k - 1] ? () => this.go(this.tape.head.chapters[k - 1][0]) : null);
    if (act && !(k === " " && event.target.tagName === "BUTTON")) { event.preventDefault(); act(); }
  }

  // -- words

  called = (actor, run) => (this.tape.head.runs[run ?? this.tape.row(this.state.at).run]?.actors[actor] ?? "").replace(/^queue:/, "");

  parts(number) {  // of a caption: text, or [kind, value, thing]
    const { template, fillers } = this.tape.row(number);
    return template.split(/(\{[mn]?\d(?::[\w ]+)?\})/).map((part) => {
      const found = /^\{([mn]?)(\d)(?::([\w ]+))?\}$/.exec(part);
      return found ? [found[1], fillers[+found[2]], found[3]] : part;
    });
  }

  words = (number) => this.parts(number).map((part) => (typeof part === "string" ? part : spoken(part))).join("");

  rowsOf = (what, id, most) => {
    const { tape } = this, is = what === "actor" ? (row) => tape.row(row).actor === id : (row) => tape.row(row).message === id, found = [];
    const here = this.state.at, near = (from, way, n) => { for (let row = from; row > tape.first && row <= tape.last && Math.abs(row - here) < FAR && n; row += way) if (is(row)) { found.push(row); n--; } };
    near(here, -1, most >> 1);
    near(here + 1, 1, most - (most >> 1));
    return found.sort((x, y) => x - y);
  };

  // -- the picture

  render(moving) {
    const { tape, state, root } = this, row = tape.last > tape.first ? tape.row(state.at) : null;
    const T = Object.fromEntries(tape.head.tables.map((name, i) => [name, tape.tables[i]]));
    const { changed, gone } = tape.touched();
    const now = {
      focus: state.pinned || row?.message || 0, actor: row?.actor, changed, gone: gone.map(([table, key, old]) => [tape.head.tables[table], key, old]), pinned: state.pinned, row: state.at,
      at: Object.fromEntries(tape.head.tables.map((name, i) => [name, i + ":"])), mail: grouped(T.mail, (_, m) => [m[0], m]), waits: grouped(T.wait, (_, w) => [w[0], w[1]]),
      synced: this.syncs(T) ? "synced" : "counts as synced", unfolded: this.unfolded, unfold: (id) => { this.unfolded.add(id); this.render(false); }, selected: state.selected, select: this.select, pick: this.pick, go: this.go, words: this.words, rowsOf: this.rowsOf, bytes: this.options.bytes, entry: this.options.entry,
      turn: (id) => { const a = T.actor.get(id); return a && this.options.turn?.(a[1] === "QueueProcess" ? "queue:" + a[0] : a[0]); },
    };
    this.T = T;
    const over = document.activeElement?.closest(OVER);
    patch(root.firstChild, [this.header(row), el("main.machine", { key: "machine", tabindex: "0", "aria-label": "the broker after this row" },
      el("div.left", {}, tree(T, now)), el("div.middle", {}, flow(T, now), stores(T, now)), el("div.right", {}, flying(T, now), cache(T, now), costs(T, now))),
    el("svg.way", { key: "way", "aria-hidden": "true" }), inspector(state.selected, T, now), state.keys && this.keys(), state.why && this.whys(), this.deck(row, now)]);
    if (over && !over.isConnected) (opener(over) ?? root.querySelector(".machine")).focus({ preventScroll: true });
    for (const part of root.querySelectorAll(".looked")) if (!state.look.some((each) => part.matches(LOOKS[each]))) part.classList.remove("looked");
    for (const each of state.look) for (const part of root.querySelectorAll(LOOKS[each])) part.classList.add("looked");
    this.draw(moving);
  }

  syncs = (T) => T.run.get("settings")?.[0] !== 0;  // with durability os nothing is ever synced, and no confirm waits for it

  draw(moving) {
    const svg = this.root.querySelector(".way"), { at, why, playing, speed } = this.state;
    if (svg && this.T) travel(svg, this.tape.last > this.tape.first && !why ? this.tape.row(at) : null, this.T, { moving, fast: playing ? speed : 1 });
  }

  header(row) {
    const { state } = this, head = this.tape.head;
    return el("header", { key: "header", "aria-label": "the lens" }, el("h1", {}, el("b", {}, "warrenmq"), " the lens"), el("p.title", {}, named(head.title), this.options.live?.() ? el("span.live", {}, "live") : null, !this.syncs(this.T) && el("span.note", {}, "durability os: nothing is synced"), head.note && el("span.note", {}, head.note)),
      state.search !== null && el("label.search", { key: "search" }, el("input", { type: "search", placeholder: "search the captions", "aria-label": "search the captions", on: { keydown: (e) => { if (e.key === "Enter") this.search(e.target.value, e.shiftKey ? -1 : 1); } } }), el("span.note", { role: "status" }, state.missed)),
      state.pinned > 0 && el("button.pinned", { title: "let it go", on: { click: () => this.pick(state.pinned) } }, "following ", el("b", {}, "m" + state.pinned), " \u00d7"),
      el("nav", { key: "nav", "aria-label": "how it looks" }, el("button", { "aria-expanded": String(state.keys), title: "keys (?)", "aria-label": "keys", on: { click: () => this.toggle("keys") } }, el("span", { "aria-hidden": "true" }, "?")),
        el("button", { title: "smaller (-)", "aria-label": "A\u2212: smaller", on: { click: () => this.resize(-1) } }, "A", el("small", {}, "\u2212")), el("button", { title: "larger (+)", "aria-label": "A+: larger", on: { click: () => this.resize(1) } }, "A", el("small", {}, "+")),
        el("button", { title: "dark or light (d)", "aria-label": "dark or light", on: { click: this.theme } }, el("svg", { viewBox: "0 0 16 16", width: 14, height: 14 }, el("circle.o", { cx: 8, cy: 8, r: 6.2 }), el("path", { d: "M8 1.8a6.2 6.2 0 0 1 0 12.4z" })))));
  }

  keys() {
    return el("div.keys", { key: "keys", role: "dialog", tabindex: "-1", "aria-label": "keys" }, el("h2", {}, "Keys"), el("dl", {}, KEYS.map(([k, what]) => el("div", {}, el("dt", {}, k), el("dd", {}, what)))));
  }

  whys() {
    const { tape } = this, { at } = this.state, chain = tape.why(at);
    return el("div.why", { key: "why", role: "dialog", tabindex: "-1", "aria-label": "why" }, el("h2", {}, "Why? Each row, and the one before that led to it"),
      el("ol", {}, [at, ...chain].map((number, i) => { const row = tape.row(number); return el("li", { key: number, class: i ? "" : "first" }, el("button", { on: { click: () => this.show(number, { why: true }, true) } },
        el("span.no", {}, num(number)), named(this.called(row.actor, row.run), { class: "who" }), el("span.said", {}, this.words(number)))); })),
      !chain.length && el("p.void", {}, "No row of this trace led to it: it came from outside."));
  }

  caption(number, now) {
    return this.parts(number).map((part) => {
      if (typeof part === "string") return part;
      const [kind, value] = part;
      if (kind === "m") return el("b.m", { class: value === now.focus ? "foc" : "", on: { click: () => this.pick(value) } }, "m" + value);
      return kind === "n" ? spoken(part) : named(value, { class: "arg" });
    });
  }

  deck(row, now) {
    const { tape, state } = this, { head } = tape, here = head.chapters.findLastIndex((c) => c[0] <= state.at), shown = row && stage(row, this.T, (id) => this.called(id, row.run));
    const button = (label, key, act, ...inside) => el("button", { title: `${label} (${key})`, "aria-label": label, on: { click: act } }, ...inside);
    const icon = (...paths) => el("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, paths);
    const broken = (head.violations ?? []).find((v) => v.row === state.at || v.rows.includes(state.at));
    return el("footer.deck", { key: "deck", "aria-label": "this row" },
      el("div.told", {},
        el("p.meta", {}, row && named(this.called(row.actor), { class: "who" }), el("span.ev", {}, row ? (head.events[row.event] ?? "event " + row.event).toLowerCase().replaceAll("_", " ") : ""), el("span.when", {}, row ? `boot ${head.runs[row.run]?.boot ?? "?"}, ${clock(row.t - (head.runs[row.run]?.t ?? 0))}` : "")),
        el("div.say", {}, shown && el("p.stage", { "aria-hidden": "true" }, el("span", {}, shown.from || "disk"), el("i", {}, shown.message && el("b", {}, shown.message)), shown.by && [el("span", {}, shown.by), el("i")], el("span", {}, shown.to)),
          el("p.caption", { "aria-live": "polite" }, row ? this.caption(state.at, now) : "No row has come yet."),
          broken && el("p.broken", {}, el("b", {}, broken.rule), " ", plain(broken.text))),
        el("button.ask", { "aria-expanded": String(state.why), disabled: !row?.cause && !state.why, title: "the rows that led to this one (w)", on: { click: () => this.toggle("why") } }, "why?")),
      el("div.drive", {},
        el("div.buttons", {}, button("previous row", "\u2190", () => this.step(-1, "row"), icon(el("path", { d: "M11 2.5v11L3.5 8z" }), el("path.o", { d: "M12.5 2.5v11" }))),
          el("button.go", { title: "play (space)", "aria-label": state.playing ? "pause" : "play", on: { click: this.play } }, icon(el("path", { d: state.playing ? "M4 2.5h3v11H4zM9 2.5h3v11H9z" : "M4 2v12l9.5-6z" }))),
          button("next row", "\u2192", () => this.step(1, "row"), icon(el("path", { d: "M5 2.5v11L12.5 8z" }), el("path.o", { d: "M3.5 2.5v11" })))),
        el("div.units", {}, el("button", { title: "next handled message (Shift + \u2192)", on: { click: () => this.step(1, "message") } }, "message"),
          el("span.until", {}, el("button", { title: "until (u)", on: { click: () => this.step(1, "until") } }, "until"), el("select", { value: state.until, "aria-label": "until what", on: { change: (e) => { state.until = e.target.value; } } }, Object.entries(UNTIL).map(([value, words]) => el("option", { value }, words)))),
          el("button.speed", { title: "speed", on: { click: () => { state.speed = SPEEDS[(SPEEDS.indexOf(state.speed) + 1) % SPEEDS.length]; this.render(false); } } }, (state.speed === 0.5 ? "\u00bd" : state.speed) + "\u00d7")),
        el("div.names", { "aria-hidden": "true" }, ["syncs", "confirms", "cancelled", "files"].map((name) => el("span", {}, name))),
        el("div.strip", {}, el("div.chapters", {}, places(tape, this.width, this.scale).map((x, i) => el("button", { class: i === here ? "here" : "", style: { left: x + "px" }, title: head.chapters[i][1], on: { click: () => this.go(head.chapters[i][0]) } }, i + 1))),
          strip(tape, state.at, this.width, this.scale, row ? this.words(state.at) : "", this.scrub)),
        el("p.count", {}, el("b", {}, num(state.at)), ` of ${num(tape.last)}`, el("small", {}, here >= 0 ? `${here + 1} ${head.chapters[here][1]}` : ""))));
  }
}

// what opened a dialog that is closed now; if that was in another one that is closed, what opened that
function opener(over) {
  let found = over;
  while (found && !found.isConnected) found = found.closest(OVER)?.$opener;
  return found;
}

function spoken([kind, value, thing]) {
  if (kind === "m") return "m" + value;
  if (kind === "n") return thing ? `${num(value)} ${thing}${value === 1 ? "" : "s"}` : num(value);
  return plain(value);
}
