// The broker: supervision tree, publishers, queues, consumers, and what the stores share with their clients.
//
// A picture is made of the tables of the tape (warrenmq/lens/tables.py) and of `now`: the message in focus, the actor of the row, what the
// row changed, and what a click does.  data-a names the anchors between which messages travel.
import { bytes, el, named, num, plain, plural } from "./dom.js";

export const INDEX = ["in memory only", "written, not synced"];  // and then now.synced
export const PLACES = ["", "alpha: body and position in memory", "beta: body on disk, position in memory", "gamma: body on disk, position in both", "delta: on disk only"];
const BODIES = ["small, beside the index", "in the persistent store", "in the transient store"];
export const bodyOf = (e) => (e[5] ? `${BODIES[e[4]]}, ${bytes(e[5])}` : BODIES[e[4]]);  // an entry's
const CELLS = 90, QUEUES = 8, FOLDED = 40, OWED = 3;  // as many as there is room for

export function grouped(table, pick) {
  const found = new Map();
  for (const [key, value] of table) {
    const [name, rest] = pick(key, value);
    const list = found.get(name);
    if (list) list.push(rest); else found.set(name, [rest]);
  }
  return found;
}

// the name of a queue and the sequence id, [priority, id], from the key of an entry
export function placeOf(key) {
  const at = key.lastIndexOf("/"), seq = key.slice(at + 1).split(".");
  return [key.slice(0, at), seq.length > 1 ? [+seq[0], +seq[1]] : [0, +seq[0]]];
}

export function mailbox(id, now, wide, name = "") {
  const turn = now.turn?.(id);
  const mine = now.mail.get(id) ?? [], shown = mine.slice(0, wide ? 14 : 4);
  const title = mine.length ? `${plural(mine.length, "envelope")}: ${mine.slice(0, 20).map((m) => m[1] + (m[2] ? " m" + m[2] : "")).join(", ")}` : "its mailbox is empty";
  return el("span.box", { class: mine.length ? "" : "empty", "data-a": (wide ? "box/" : "act/") + id, title },
    shown.map((m) => el("i.mail", { class: m[2] && m[2] === now.focus ? "foc" : "", on: { click: (e) => { e.stopPropagation(); if (m[2]) now.pick(m[2]); } } },
      wide && (m[2] ? "m" + m[2] + (m[3] > 1 ? "+" + (m[3] - 1) : "") : plain(m[1])))),
    mine.length > shown.length && el("b", {}, "+" + (mine.length - shown.length)),
    wide && !mine.length && el("em", {}, "mailbox"),
    turn && el("button.serve", { title: "serve it now, for one turn", "aria-label": `serve ${plain(name)}`, on: { click: turn } }, "\u25b8"));
}

// -- the supervision tree

export function tree(T, now) {
  const under = grouped(T.actor, (id, a) => [a[2], [id, a]]);
  const line = ([id, a], depth) => {
    const children = under.get(id) ?? [];
    const shown = children.length > FOLDED && !now.unfolded.has(id) ? children.filter(([child]) => child === now.actor || child === now.selected?.id) : children;
    const waits = now.waits.get(id);
    return el("li", { key: id },
      el("div.actor", { class: `s-${a[3]} ${id === now.actor ? "now" : ""} ${now.selected?.kind === "actor" && now.selected.id === id ? "sel" : ""}`, style: { "padding-left": depth * 0.85 + "rem" } },
        el("button.of", { title: `${a[1]}, ${a[3]}`, on: { click: () => now.select({ kind: "actor", id }) } },
          el("span.dot", { "aria-hidden": "true" }), named(a[0], { class: "name" }),
          a[4] > 1 && el("span.again", { title: `incarnation ${a[4]}` }, "\u00d7" + a[4]),
          waits && el("span.state", {}, "waits"),
          a[3] !== "up" && a[3] !== "starting" && el("span.state", {}, a[3])),
        mailbox(id, now, false, a[0])),
      shown.length < children.length && el("button.fold", { style: { "padding-left": (depth + 1) * 0.85 + "rem" }, on: { click: () => now.unfold(id) } }, `${num(children.length)} children`),
      shown.length > 0 && el("ul", {}, shown.map((child) => line(child, depth + 1))));
  };
  const roots = [...T.actor].filter(([, a]) => (!a[2] || !T.actor.has(a[2])) && a[1] !== "client" && a[1] !== "broker");
  return el("section.panel.tree", { "aria-label": "processes" }, el("h2", {}, "Supervision tree"),
    roots.length ? el("ul", {}, roots.map((root) => line(root, 0))) : el("p.void", {}, "No process lives."));
}

// -- queues

// RabbitMQ up to 3.11 keeps q1 q2 delta q3 q4; later versions a head in memory and a tail on disk
function pipes(cells, classic) {
  const ready = cells.filter((c) => c.e[1] === "ready");
  if (!classic) return (c) => (c.e[1] !== "ready" ? "" : c.e[2] === 4 ? "on disk" : "in memory");
  const delta = ready.findIndex((c) => c.e[2] === 4), q3 = ready.findIndex((c) => c.e[2] > 1);
  return (c) => {
    if (c.e[1] !== "ready") return "";
    if (c.e[2] === 4) return "delta";
    const behind = delta >= 0 && ready.indexOf(c) > delta;
    if (c.e[2] > 1) return behind ? "q2" : "q3";
    return behind || (q3 >= 0 && ready.indexOf(c) > q3) ? "q1" : "q4";
  };
}

function cell(name, { seq, key, e }, now, entries) {
  const [message, state, place, index] = e, body = e[4];
  const begins = entries && seq[1] && seq[1] % entries === 0;
  return el("i.cell", { key, class: `${state} i${index} ${body ? "big" : ""} ${place > 1 ? "p" + place : ""} ${message && message === now.focus ? "foc" : ""} ${now.changed.has(now.at.entry + key) ? "chg" : ""} ${begins ? "seg" : ""}`,
    "data-a": "entry/" + key, on: { click: () => message && now.select({ kind: "message", id: message }) },
    title: `number ${seq[1]}${seq[0] ? ", priority " + seq[0] : ""}, ${message ? "m" + message : "a message"}: ${state}; ${PLACES[place] || "where it is was not told"}; index ${INDEX[index] ?? now.synced}; body ${bodyOf(e)}${begins ? `; segment ${seq[1] / entries} begins here` : ""}` });
}

function queue(name, q, list, T, now) {
  const settings = T.run.get("settings"), classic = T.run.get("run")?.[3] === 1;
  const cells = list.sort((x, y) => y.seq[0] - x.seq[0] || x.seq[1] - y.seq[1]);
  let ready = 0, unacked = 0;
  for (const { e } of cells) if (e[1] === "ready") ready++; else if (e[1] === "unacked") unacked++;
  let shown = cells, before = 0, between = 0, tail = 0;  // `tail` = the place in `shown` behind those that are left out
  if (cells.length > CELLS) {
    before = Math.max(0, Math.min(cells.length - CELLS, cells.findIndex((c) => c.e[1] === "ready" || c.e[1] === "unacked") - 6));
    const at = cells.findIndex((c) => now.focus && c.e[0] === now.focus), half = CELLS / 2;
    shown = [...cells.slice(before, before + half), ...cells.slice(-half)];
    if (at >= before + half && at < cells.length - half) shown.splice(half, 0, cells[at]);
    between = cells.length - before - shown.length;
    tail = shown.length - half;
  }
  const entries = settings?.[q[5] === 1 || classic ? 2 : 3] ?? 0, pipe = pipes(cells, classic), groups = [];
  shown.forEach((each, i) => {
    const label = pipe(each), left = i ? (i === tail ? between : 0) : before;
    if (left || !groups.length || groups[groups.length - 1].label !== label) groups.push({ label, cells: [], left: left > 0 && `${num(left)} ${i ? "more" : "before"}` });
    groups[groups.length - 1].cells.push(each);
  });
  const actor = T.actor.get(q[0]), dead = actor && !["up", "starting"].includes(actor[3]);
  const ram = T.ram.get(name), journal = T.journal.get(name), waits = now.waits.get(q[0]);
  return el("div.queue", { key: name, class: `${dead ? "dead" : ""} ${q[0] === now.actor ? "now" : ""}`, "data-a": "queue/" + name },
    el("div.qhead", {}, el("h3", { on: { click: () => now.select({ kind: "actor", id: q[0] }) } }, named(name)), mailbox(q[0], now, true, name),
      waits && el("span.fact.hot", {}, "waits for credit"),
      ram && ram[0] >= 0 && el("span.fact", { title: "the memory monitor's target" }, el("b", {}, num(ram[0])), " may stay in memory"),
      journal && journal[1] > 0 && el("span.fact", { title: "from the journal to segment files" }, el("b", {}, num(journal[1])), journal[1] === 1 ? " segment written" : " segments written"),
      el("span.fact", {}, el("b", {}, num(ready)), " ready"), el("span.fact", {}, el("b", {}, num(unacked)), " unacked")),
    el("div.cells", { role: "img", "aria-label": `${plain(name)}: ${plural(ready, "message")} ready, ${unacked} unacked` },
      groups.map((group, i) => [group.left && el("b.more", { key: "m" + i }, group.left), el("span.pipe", { key: "g" + i, class: group.label ? "" : "bare", title: group.label },
        el("span.tag", {}, group.cells.length > 2 || group.label.length < 3 ? group.label : ""), el("span.row", {}, group.cells.map((each) => cell(name, each, now, entries))))]),
      !cells.length && el("span.void", {}, dead ? "what it knew is gone" : "empty")));
}

// exchanges, and the lines from publishers and to queues: a message follows the ones that are lit
const LISTED = 6;

function routing(T, now) {
  const lit = [...T.route].filter(([client, r]) => (r[2] ? r[2] === now.focus : client === now.actor)), bound = grouped(T.binding, (_, b) => [b[0], b]);
  let names = [...T.exchange.keys()].filter((name) => !name.startsWith("amq.") || bound.has(name));
  for (const [, r] of T.route) if (r[0] && !names.includes(r[0])) names.push(r[0]);
  if (!names.length) return null;  // all go through the default exchange, straight to the queues that they name
  if ([...T.route.values()].some((r) => !r[0])) names.unshift("");
  const all = names.length, first = (name) => lit.some(([, r]) => r[0] === name);
  if (all > LISTED) names = [...names.filter(first), ...names.filter((name) => !first(name))].slice(0, LISTED);
  const chosen = new Set();
  for (const [key, message] of T.chosen) if (message && message === now.focus) { const [client, actor] = key.split("/"); if (T.route.get(+client)?.[2] === message) chosen.add(+actor); }
  const queues = new Set([...T.queue.values()].map((q) => q[0]));  // a queue, too, publishes: what it lets go to a dead-letter exchange
  return { names, all, bound, chosen, lit: new Map(lit.map(([, r]) => [r[0], r])), outside: new Set(lit.filter(([client]) => !queues.has(client)).map(([, r]) => r[0])) };
}

function exchanges(found, T) {
  const { names, all, bound, lit } = found;
  return el("div.exchanges", { "aria-label": "exchanges" }, names.map((name) => {
    const through = lit.get(name), mine = bound.get(name) ?? [], keys = mine.map((b) => `${b[2] || "any key"} to ${b[3]} ${plain(b[1])}`), onward = mine.filter((b) => b[3] === "exchange");
    return el("div.exchange", { key: name, class: through ? "foc" : "", "data-a": "exchange/" + name, title: name ? keys.slice(0, 12).join("; ") || "nothing is bound to it" : "leads to the queue whose name is the routing key" },
      name ? named(name, { class: "name" }) : el("span.name", {}, "default"), el("small", {}, `${T.exchange.get(name) ?? (name ? "" : "direct")} exchange`),
      onward.map((b) => el("small", {}, "and to ", named(b[1]))),
      through?.[1] && el("small.with", {}, "key ", named(through[1])));
  }), all > names.length && el("p.void", {}, `${num(all - names.length)} more`));
}

const curve = (y1, y2) => `M0 ${y1} C 24 ${y1}, 16 ${y2}, 40 ${y2}`;
const middles = (count) => (i) => (i + 0.5) * 100 / count;

function fan(lines) {
  return el("svg.fan", { viewBox: "0 0 40 100", preserveAspectRatio: "none", "aria-hidden": "true" },
    lines.sort((x, y) => x[2] - y[2]).map(([from, to, is]) => el("path", { class: is ? "foc" : "", d: curve(from, to) })));
}

export function flow(T, now) {
  const entries = grouped(T.entry, (key, e) => { const [name, seq] = placeOf(key); return [name, { seq, key, e }]; });
  let queues = [...T.queue];
  const there = new Set(queues.map(([name]) => name));
  for (const name of entries.keys()) if (!there.has(name)) queues.push([name, [0, 0, 0, 0, 0, 0]]);  // asleep: on disk, no process yet
  const all = queues.length;
  if (all > QUEUES) {
    const weight = ([name, q]) => (q[0] === now.actor ? 4 : 0) + ((entries.get(name) ?? []).some((c) => c.e[0] === now.focus) ? 2 : 0) + ((now.mail.get(q[0]) ?? []).length ? 1 : 0);
    const chosen = new Set([...queues].sort((x, y) => weight(y) - weight(x)).slice(0, QUEUES).map(([name]) => name));
    queues = queues.filter(([name]) => chosen.has(name));
  }
  let asked = 0, confirmed = 0, nacked = 0, unasked = 0;
  for (const [, p] of T.pub) { asked += p[0] - p[3]; confirmed += p[1]; nacked += p[2]; unasked += p[3]; }
  const publishers = [...T.pub], owed = [...(T.owed.has(now.focus) ? [now.focus] : []), ...[...T.owed.keys()].filter((message) => message !== now.focus)].slice(0, OWED), alarms = [...T.alarm];
  const consumers = [...T.consumer], routes = routing(T, now), lane = middles(queues.length), place = middles(routes?.names.length ?? 1);
  return el("section.flow", { class: routes ? "routed" : "", "aria-label": "publishers, queues, consumers" },
    el("div.end", { "data-a": "pub" }, el("h2", {}, publishers.length > 1 ? "Publishers" : "Publisher"),
      el("p.big", {}, num(confirmed), el("small", {}, ` of ${num(asked)} confirmed${nacked ? `, ${num(nacked)} nacked` : ""}${unasked ? `, ${num(unasked)} without a confirm` : ""}`)),
      publishers.length > 1 && el("ul.who", {}, publishers.slice(0, 4).map(([id, p]) => el("li", { key: id, "data-a": "pub/" + id, class: id === now.actor ? "now" : "" }, named(T.actor.get(id)?.[0] ?? "a client"), ` ${num(p[1])}/${num(p[0] - p[3])}`)),
        publishers.length > 4 && el("li", {}, `${num(publishers.length - 4)} more`)),
      alarms.map(([what]) => el("p.alarm", { key: what }, `${what} alarm`)),
      el("div.owed", {}, T.owed.size > owed.length && el("b", {}, num(T.owed.size) + " wait"), owed.map((message) => el("i.chip", { key: message, class: message === now.focus ? "foc" : "", on: { click: () => now.pick(message) }, title: `m${message} waits for ${plural(T.owed.get(message)[1], "queue")}` },
        "m" + message, T.owed.get(message)[1] > 1 && el("sup", {}, T.owed.get(message)[1]))))),
    routes ? [fan(routes.names.map((name, i) => [50, place(i), routes.outside.has(name)])), exchanges(routes, T),
      fan(routes.names.flatMap((name, i) => queues.flatMap(([queue, q], j) => {
        const is = routes.lit.has(name) && routes.chosen.has(q[0]);
        return is || (routes.bound.get(name) ?? []).some((b) => b[1] === queue && b[3] === "queue") ? [[place(i), lane(j), is]] : [];
      })))] : fan(queues.map((_, i) => [50, lane(i), false])),
    el("div.queues", {},
      queues.map(([name, q]) => queue(name, q, entries.get(name) ?? [], T, now)),
      all > queues.length && el("p.void", { key: "\u0000more" }, `${num(all - queues.length)} more queues`),
      !queues.length && el("p.void", { key: "\u0000none" }, T.run.get("run")?.[1] > 1 ? "No queue process lives. Their files are on the disk." : "No queue has been declared."),
      queues.length > 0 && el("ul.legend", { key: "\u0000key" },
        [["ready big", "large, ready"], ["ready", "small, ready"], ["unacked big", "delivered"], ["acked big", "acknowledged"]].map(([kind, words]) => el("li", {}, el("i.cell", { class: kind }), words)),
        el("li", {}, el("i.stroke", {}, el("i.i0"), el("i.i1"), el("i.i2")), `index: memory, written, ${now.synced}`))),
    el("div.end.con", { "data-a": "con" }, el("h2", {}, consumers.length > 1 ? "Consumers" : "Consumer"),
      el("p.big", {}, num(T.cost.get("acknowledged") ?? 0), el("small", {}, " acknowledged")),
      consumers.length > 0 && el("ul.who", {}, consumers.slice(0, 4).map(([id, c]) => el("li", { key: id, "data-a": "con/" + id, title: c[2] ? "takes without acks" : c[1] ? `at most ${c[1]} unacked` : "no limit" }, named(c[0]), c[1] ? ` \u2264${c[1]}` : "")),
        consumers.length > 4 && el("li", {}, `${num(consumers.length - 4)} more`))));
}

// -- the right column

export function flying(T, now) {
  const rows = [...now.gone.filter(([table]) => table === "flying").map(([, key, value]) => [key, value, true]), ...T.flying];
  rows.sort((x, y) => (+y[0].split("/")[1] === now.focus) - (+x[0].split("/")[1] === now.focus));
  return el("section.panel.flying", { "data-a": "flying" }, el("h2", {}, "Flying counters"),
    rows.length ? el("ul", {}, rows.slice(0, 9).map(([key, value, left]) => {
      const [, message, ...name] = key.split("/");
      return el("li", { key, class: `${+message === now.focus ? "foc" : ""} ${left ? "left" : ""} ${now.changed.has(now.at.flying + key) ? "chg" : ""}`, "data-a": "flying/" + key, on: { click: () => now.pick(+message) } },
        el("span.m", {}, "m" + message), named(name.join("/"), { class: "q" }), el("b", { class: "v" + Math.sign(value) }, value > 0 ? "+" + value : value < 0 ? "\u2212" + -value : "0"));
    })) : el("p.void", {}, "Nothing is on its way to a store."),
    rows.length > 9 && el("p.void", {}, `${num(rows.length - 9)} more`));
}

export function cache(T, now) {
  const rows = [...T.cache.keys()];
  const shown = rows.filter((key) => +key.slice(2) === now.focus).concat(rows.filter((key) => +key.slice(2) !== now.focus).slice(-20));
  return el("section.panel.cache", { "data-a": "cache" }, el("h2", {}, "Current-file cache"),
    rows.length ? el("div.chips", {}, shown.map((key) => {
      const message = +key.slice(2);
      return el("i.chip", { key, class: `${message === now.focus ? "foc" : ""} ${now.changed.has(now.at.cache + key) ? "chg" : ""}`, "data-a": "cache/" + key, on: { click: () => now.pick(message) } }, "m" + message);
    }), rows.length > shown.length && el("b", {}, "+" + num(rows.length - shown.length))) : el("p.void", {}, "Empty."));
}

const COSTS = [["body bytes", "bodies appended", bytes], ["index bytes", "index written", bytes], ["writes", "store writes", num], ["syncs", "syncs", num],
  ["writes cancelled", "writes cancelled", num], ["bytes copied", "copied by the collector", bytes], ["bytes given back", "given back", bytes],
  ["reads from the cache", "reads from the cache", num], ["reads from disk", "reads from disk", num]];

export function costs(T, now) {
  return el("section.panel.costs", {}, el("h2", {}, "What it cost"), el("dl", {}, COSTS.map(([key, label, show]) =>
    el("div", { class: now.changed.has(now.at.cost + key) ? "chg" : "" }, el("dt", {}, label), el("dd", {}, show(T.cost.get(key) ?? 0))))));
}
