// Both message stores, their files byte by byte.
import { bytes, el, num, plural } from "./dom.js";
import { mailbox } from "./machine.js";

const LEVELS = ["in the write buffer", "written, not synced"];  // and then now.synced
const NAMES = { p: "msg_store_persistent", t: "msg_store_transient" };
const FILES = 7, MANY = 600, DENSE = 60, UNITS = 1000;
const SAID = { current: "current", locked: "with the collector", compacting: "compacting" };

// neighbours of one level that would be thinner than a pixel or two become one
function buckets(live, scale, level) {
  const found = [];
  let to = -1, of = -1;
  for (const each of live) {
    const [at, r] = each, from = Math.floor(at * scale), end = Math.ceil((at + r[1]) * scale), last = found[found.length - 1];
    if (last && from <= to && level(each) === of) { to = Math.max(to, end); last[1][1] = at + r[1] - last[0]; } else { to = end; of = level(each); found.push([at, [0, r[1], 1, ""]]); }
  }
  return found;
}

function record(store, file, [at, r], level, scale, now, many, dense) {
  const [message, size, references, why] = r, key = `${store}/${file}/${at}`, wide = size * scale;
  const chg = now.changed.has(now.at.rec + key), foc = message && message === now.focus;
  const state = references ? `w${level} ${why.replace(" ", "-")}` : "gone " + (why ? "ghost" : "");
  const title = dense && !foc ? `m${message}` : references ? `m${message}: ${num(size)} bytes at ${num(at)}, ${plural(references, "reference")}; ${LEVELS[level] ?? now.synced}` : `garbage: ${message ? `m${message} was here, ` : ""}${num(size)} bytes`;
  return el("i.rec", { key: at, class: `${state} ${foc ? "foc" : ""} ${chg ? "chg" : ""}`, "data-a": "rec/" + key, title: many && !foc ? undefined : title,
    style: { left: at * scale / 10 + "%", width: size * scale / 10 + "%" }, on: { click: () => now.select({ kind: "record", id: key }) } },
    message && wide > 10 + 13 * String(message).length ? el("span", { style: { "--n": String(message).length } }, "m" + message) : null,
    references && wide > 12 && !many ? el("u", {}, Array.from({ length: Math.min(references, 4) }, () => el("s"))) : null);
}

function file(store, number, f, records, scale, limit, T, now) {
  const [size, written, synced, garbage, state] = f, key = `${store}/${number}`, part = (b) => b * scale / 10 + "%";
  const share = size ? Math.round(100 * garbage / size) : 0, asleep = state === "asleep", open = T.store.has(store);
  const live = records.filter(([, r]) => r[2] > 0).sort((x, y) => x[0] - y[0]), many = live.length > MANY, dense = live.length > DENSE;
  const level = ([at, r]) => (at + r[1] <= synced ? 2 : at + r[1] <= written ? 1 : 0);
  const marked = ([at, r]) => r[0] === now.focus || now.changed.has(now.at.rec + `${key}/${at}`);
  const shown = many ? [...buckets(live, scale, level), ...live.filter(marked)] : live;
  const garbages = records.filter((each) => !each[1][2] && (!dense || each[1][3] || marked(each)));
  const said = asleep ? (open ? "being read" : "not opened") : SAID[state] ?? "";
  return el("div.file", { key: number, class: `${state} ${now.changed.has(now.at.file + key) ? "chg" : ""}`, "data-a": "file/" + key },
    el("button.fname", { on: { click: () => now.select({ kind: "file", id: key }) } }, el("b", {}, number), ".rdq"),
    el("div.map", { role: "img", "aria-label": `${number}.rdq: ${num(size)} bytes, ${share} percent garbage, ${num(synced)} bytes: ${now.synced}. ${said}` },
      el("div.extent", { key: "extent", style: { width: part(size) } }),
      shown.map((each) => record(store, number, each, level(each), scale, now, many, dense)),
      garbages.map((each) => record(store, number, each, 2, scale, now, many, dense)),
      state === "current" && el("b.cursor", { key: "cursor", style: { left: part(size) }, title: "the next record goes here" }),
      el("span.safe", { key: "safe", style: { width: part(synced) } }),
      el("span.written", { key: "written", style: { left: part(synced), width: part(Math.max(0, written - synced)) } }),
      limit > 0 && el("span.limit", { key: "limit", style: { left: part(limit) }, title: "at this size the next file begins" })),
    el("div.fstate", {}, el("b", {}, size ? share + "\u2009%" : "\u2013"), el("small", {}, said || (size ? "garbage" : "empty"))));
}

function store(id, T, now, files, records, limit, wide, scale) {
  const s = T.store.get(id), gc = T.gc.get(id);
  if (!s && !files.some(([, f]) => f[0])) return el("section.store.none", { key: id }, el("div.shead", {}, el("h2", {}, NAMES[id]), el("span.void", {}, "not there yet")));
  let live = 0, all = 0, waste = 0, unsynced = 0;
  for (const [, f] of files) { all += f[0]; waste += f[3]; unsynced += f[0] - f[2]; }
  for (const list of records.values()) for (const [, r] of list) if (r[2]) live++;
  const bare = !all && files.length < 2 && id === "t";
  const chosen = files.length > FILES ? files.filter(([n, f], i) => i >= files.length - 4 || ["locked", "compacting"].includes(f[4]) || now.changed.has(now.at.file + `${id}/${n}`) || (records.get(n) ?? []).some(([, r]) => r[0] === now.focus)).slice(-FILES) : files;
  const others = files.filter((each) => !chosen.includes(each));
  return el("section.store", { key: id, class: `${bare ? "bare" : ""} ${s && s[0] === now.actor ? "now" : ""}`, "data-a": "store/" + id },
    el("div.shead", {}, el("h2", { on: { click: () => s && now.select({ kind: "actor", id: s[0] }) } }, NAMES[id]), s && mailbox(s[0], now, true, NAMES[id]),
      !s ? el("span.fact.asleep", {}, "on disk, nobody has opened it") : bare ? el("span.void", {}, "empty: it takes bodies of transient messages") : [
        el("span.fact", {}, el("b", {}, num(live)), live === 1 ? " message" : " messages"), el("span.fact", {}, el("b", {}, bytes(all)), " in " + plural(files.length, "file")),
        el("span.fact", {}, el("b", {}, (all ? Math.round(100 * waste / all) : 0) + "\u2009%"), " garbage"), el("span.fact", { class: unsynced ? "hot" : "" }, el("b", {}, bytes(unsynced)), " unsynced")]),
    gc && el("p.gc", {}, el("span", {}, "Collector"), gc[0] === gc[1] ? ` ${gc[0]}.rdq, in place ` : ` ${gc[0]}.rdq into ${gc[1]}.rdq `,
      gc[2] > 0 && el("i.bar", {}, el("i", { style: { width: Math.min(100, 100 * gc[3] / gc[2]) + "%" } })), ` ${bytes(gc[3])} copied`),
    !bare && el("div.files", { style: { "--n": Math.max(2, Math.min(8, chosen.length)) } },
      el("div.axis", { "aria-hidden": "true" }, [0, 0.25, 0.5, 0.75, 1].map((p) => el("span", { style: { left: p * wide * scale / 10 + "%" } }, p ? bytes(p * wide) : "0"))),
      limit > wide * 1.16 && el("p.void.others", { key: "limit" }, `The next file begins at ${bytes(limit)}.`),
      others.length > 0 && el("p.void.others", { key: "others" }, `${plural(others.length, "other file")}, ${bytes(others.reduce((n, [, f]) => n + f[0], 0))}, ${bytes(others.reduce((n, [, f]) => n + f[3], 0))} of it garbage`),
      chosen.map(([n, f]) => file(id, n, f, records.get(n) ?? [], scale, limit <= wide * 1.16 ? limit : 0, T, now)),
      id === "p" && el("ul.legend", { key: "legend" }, [["w0", "in the write buffer"], ["w1", "written, not synced"], ["w2", now.synced], ["g", "garbage"]].map(([kind, words]) => el("li", {}, el("i.key", { class: kind }), words)),
        el("li", {}, el("i.pips", {}, el("s"), el("s")), "references"), el("li", {}, el("i.key.f"), "this row's message"))));
}

// how many bytes the maps are wide: up to where a file is full, or, while all are far from that, the next power of two
function extent(largest, limit) {
  if (largest * 4 > limit && limit) return limit;
  let wide = 4096;
  while (wide < largest) wide *= 2;
  return limit ? Math.min(wide, limit) : wide;
}

export function stores(T, now) {
  const limit = T.run.get("settings")?.[1] ?? 0;
  let largest = 0;
  for (const f of T.file.values()) largest = Math.max(largest, f[0]);
  const wide = extent(largest, limit), scale = UNITS / Math.max(largest, wide * 1.16), records = { p: new Map(), t: new Map() }, files = { p: [], t: [] };
  for (const [key, f] of T.file) files[key[0]]?.push([+key.slice(2), f]);
  for (const [key, r] of T.rec) {
    const a = key.indexOf("/"), b = key.lastIndexOf("/"), of = records[key.slice(0, a)], n = +key.slice(a + 1, b);
    if (!of) continue;
    const list = of.get(n), each = [+key.slice(b + 1), r];
    if (list) list.push(each); else of.set(n, [each]);
  }
  return ["p", "t"].map((id) => store(id, T, now, files[id].sort((x, y) => x[0] - y[0]), records[id], limit, wide, scale));
}
