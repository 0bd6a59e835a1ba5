// What is known of one thing: a process, a message, a record, a file.
import { bytes, el, named, num, plain, plural } from "./dom.js";
import { INDEX, PLACES, bodyOf, placeOf } from "./machine.js";

const ROWS = 12, SEGMENTS = 12;
const KINDS = { actor: "Process", message: "Message", entry: "Index entry", record: "Record", file: "File" };

const line = (name, ...value) => el("div", {}, el("dt", {}, name), el("dd", {}, ...value));

function ofActor(id, T, now) {
  const a = T.actor.get(id);
  if (!a) return [el("p.void", {}, "It does not live at this row.")];
  const lines = [line("name", named(a[0])), line("kind", a[1]), line("state", a[3]), line("incarnation", num(a[4]))];
  if (T.actor.has(a[2])) lines.push(line("parent", el("button.link", { on: { click: () => now.select({ kind: "actor", id: a[2] }) } }, named(T.actor.get(a[2])[0]))));
  const mail = now.mail.get(id) ?? [];
  lines.push(line("mailbox", mail.length ? `${plural(mail.length, "envelope")}: ${mail.slice(0, 6).map((m) => m[1] + (m[2] ? " m" + m[2] : "")).join(", ")}${mail.length > 6 ? ", ..." : ""}` : "empty"));
  for (const w of T.wait.values()) if (w[0] === id) lines.push(line("waits for", w[1] ? named(T.actor.get(w[1])?.[0] ?? "a peer") : "the alarms to clear"));
  const pub = T.pub.get(id);
  if (pub) lines.push(line("sent", num(pub[0])), line("confirmed", num(pub[1])), line("nacked", num(pub[2])), line("without a confirm", num(pub[3])));
  for (const [name, q] of T.queue) {
    if (q[0] !== id) continue;
    lines.push(line("next number", num(q[1])), line("confirmed", num(q[2])), line("index written", bytes(q[3])), line(`of it ${now.synced}`, bytes(q[4])));
    const ram = T.ram.get(name), journal = T.journal.get(name);
    if (ram) lines.push(line("in memory", `${plural(ram[1], "message")}, ${bytes(ram[2])}`), line("may keep", ram[0] < 0 ? "all" : num(ram[0])));
    lines.push(...segments(name, q, T, now));
    if (journal) lines.push(line("journal", `${plural(journal[0], "record")}; ${plural(journal[1], "segment file")} written`));
    for (const [number, c] of T.consumer) if (c[0] === name) lines.push(line(`consumer ${number}`, c[1] ? `at most ${num(c[1])} unacked` : "no limit"));
  }
  for (const [store, s] of T.store) {
    if (s[0] !== id) continue;
    let live = 0;
    for (const [key, r] of T.rec) if (key[0] === store && r[2]) live++;
    lines.push(line("current file", `${s[1]}.rdq`), line("messages", num(live)), line("flying", num([...T.flying.keys()].filter((key) => key[0] === store).length)), line("cached", num([...T.cache.keys()].filter((key) => key[0] === store).length)));
  }
  return [el("dl", {}, lines), around(now, "actor", id)];
}

// what the index's files hold of a queue, segment by segment: records that were handed to the system, and the bodies in them
function segments(name, q, T, now) {
  const entries = T.run.get("settings")?.[q[5] === 1 || T.run.get("run")?.[3] === 1 ? 2 : 3], found = new Map();
  if (!entries) return [];
  for (const [key, e] of T.entry) {
    const [queue, seq] = placeOf(key), written = e[1] === "acked" || e[1] === "dropped" ? 0 : e[3];
    if (queue !== name || !written) continue;
    const label = (seq[0] ? `priority ${seq[0]}, segment ` : "segment ") + Math.floor(seq[1] / entries), sum = found.get(label) ?? [0, 0, 0];
    found.set(label, [sum[0] + 1, sum[1] + (written > 1 ? 1 : 0), sum[2] + e[5]]);
  }
  return [...found].slice(0, SEGMENTS).map(([label, [count, synced, size]]) => line(label, `${plural(count, "record")}, ${num(synced)} of them ${now.synced}`, size ? `, ${bytes(size)} of bodies` : ""));
}

function ofMessage(id, T, now) {
  const lines = [], owed = T.owed.get(id);
  if (owed) lines.push(line("publisher", `waits for ${plural(owed[1], "queue")}`));
  for (const m of T.mail.values()) if (m[2] && m[2] <= id && id < m[2] + Math.max(1, m[3])) lines.push(line("in a mailbox", named(T.actor.get(m[0])?.[0] ?? "?"), `, as ${plain(m[1])}`));
  for (const [key, e] of T.entry) if (e[0] === id) { const [name, seq] = placeOf(key); lines.push(line(`in ${plain(name)}`, el("button.link", { on: { click: () => now.select({ kind: "entry", id: key }) } }, `number ${num(seq[1])}`), `, ${e[1]}; ${PLACES[e[2]] || "?"}; index ${INDEX[e[3]] ?? now.synced}; body ${bodyOf(e)}`)); }
  for (const [key, r] of T.rec) if (r[0] === id) lines.push(line("record", el("button.link", { on: { click: () => now.select({ kind: "record", id: key }) } }, `${key.split("/")[1]}.rdq at ${num(+key.split("/")[2])}`), r[2] ? `, ${plural(r[2], "reference")}` : ", garbage"));
  for (const [key, value] of T.flying) if (+key.split("/")[1] === id) lines.push(line("flying counter", `${value > 0 ? "+" : ""}${value}, of `, named(key.split("/").slice(2).join("/"))));
  if (T.cache.has("p/" + id) || T.cache.has("t/" + id)) lines.push(line("cache", "its body is in the current-file cache"));
  return [el("dl", {}, lines.length ? lines : line("now", "nowhere any more, or not yet")), el("p", {}, el("button.link", { on: { click: () => now.pick(id) } }, now.pinned === id ? "let it go" : "follow it")), around(now, "message", id)];
}

// the rows about a thing next to this one
function around(now, what, id) {
  const rows = now.rowsOf(what, id, ROWS);
  return el("div", {}, el("h3", {}, "Rows about it"), el("ol.rows", {}, rows.map((row) => el("li", { key: row, class: row === now.row ? "here" : "" }, el("button", { on: { click: () => now.go(row) } }, el("span.no", {}, num(row)), el("span", {}, now.words(row)))))));
}

// an .rdq record: size (8 bytes), message id (16), body, end mark (1)
const PARTS = [["size", 8, "bytes of id and body, big-endian"], ["message id", 16, "unique in the directory"], ["body", 0, "the envelope and what was published"], ["end", 1, "255: the record was written whole"]];

function ofRecord(key, T, now) {
  const r = T.rec.get(key), [store, file, offset] = key.split("/");
  if (!r) return [el("p.void", {}, "There is no record at this row.")];
  let place = +offset;
  const parts = PARTS.map(([name, size, words]) => { const length = size || r[1] - 25, from = place; place += length; return { name, length, words, from }; });
  return [el("dl", {}, line("message", r[0] ? el("button.link", { on: { click: () => now.select({ kind: "message", id: r[0] }) } }, "m" + r[0]) : "unknown"), line("file", `${file}.rdq, byte ${num(+offset)} to ${num(+offset + r[1])}`), line("references", r[2] ? num(r[2]) : "none: it is garbage"), r[3] && line("note", r[3])),
    el("h3", {}, "Bytes"),
    el("table.bytes", {}, el("tbody", {}, parts.map(({ name, length, words, from }, i) => el("tr", { class: "b" + i }, el("td", {}, num(from)), el("td", {}, el("b", {}, name), el("small", {}, words)), el("td", {}, plural(length, "byte")))))),
    now.bytes ? raw(now.bytes(store, +file, +offset, r[1])) : el("p.void", {}, "The trace holds no bodies. With --data DIR the bytes are read from the file.")];
}

// the answers of a server, each asked for once; `rows` says as of which row, where the server can tell
export function asker(draw) {
  const known = new Map();
  const ask = async (url) => {
    const answer = await fetch(url);
    return answer.ok ? { ...await answer.json(), rows: +answer.headers.get("x-rows") } : { error: `The server answers ${answer.status}.` };
  };
  return (url) => {
    if (!known.has(url)) {
      known.set(url, null);
      ask(url).catch((error) => ({ error: String(error.message) })).then((found) => { known.set(url, found); draw(); });
    }
    return known.get(url);
  };
}
export const bytesOf = (store, file, offset, size) => `bytes?store=${store}&file=${file}&offset=${offset}&size=${size}`;
export const indexOf = (queue, priority, seq, state) => `index?queue=${encodeURIComponent(queue)}&priority=${priority}&seq=${seq}&state=${encodeURIComponent(state)}`;

// of which time the bytes are
const asOf = (found) => el("p.note", {}, found.rows ? `As on the simulated disk after row ${num(found.rows)}.` : "As the file is now, which may be later than this row.");

function raw(found) {
  if (!found) return el("p.void", {}, "Reading the file.");
  if (found.error) return [el("p.void", {}, found.error), asOf(found)];
  const lines = [];
  for (let i = 0; i < found.data.length; i += 8) {
    const part = found.data.slice(i, i + 8), cls = (n) => (n < 8 ? "b0" : n < 24 ? "b1" : n < found.size - 1 ? "b2" : "b3");
    lines.push(el("div", { key: i }, el("span.no", {}, num(found.offset + i)), el("span.hex", {}, part.map((byte, n) => el("i", { class: cls(i + n) }, byte.toString(16).padStart(2, "0")))),
      el("span.text", {}, part.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : "\u00b7")).join(""))));
  }
  return el("div.dump", {}, asOf(found), lines, found.hidden > 0 && el("p.void", {}, `${plural(found.hidden, "byte")} of the body are not shown; start with --bodies to see them.`));
}

// what the files of a queue's index hold of a message, field by field; the server decodes it with the readers that the store uses
function ofEntry(key, T, now) {
  const e = T.entry.get(key), [name, seq] = placeOf(key);
  const about = e ? [line("message", e[0] ? el("button.link", { on: { click: () => now.select({ kind: "message", id: e[0] }) } }, "m" + e[0]) : "unknown"), line("queue", named(name)), line("number", num(seq[1])), line("index", INDEX[e[3]] ?? now.synced), line("body", bodyOf(e))] : [line("queue", named(name)), line("now", "not in the queue at this row")];
  return [el("dl", {}, about), el("h3", {}, "Bytes"), now.entry ? fields(now.entry(name, seq[0], seq[1], e?.join("/") ?? "")) : el("p.void", {}, "The trace holds no bytes of files. With --data DIR they are read from the queue's index.")];
}

function fields(found) {
  if (!found) return el("p.void", {}, "Reading the files.");
  if (found.error) return [el("p.void", {}, found.error), asOf(found)];
  if (!found.records.length) return [el("p.void", {}, "No file of the index holds it: it is not written yet, or its segment is deleted."), asOf(found)];
  return [asOf(found), found.records.map((record, i) => el("div", { key: `${i} ${record.file} ${record.offset}` }, el("h3", {}, `${record.file}, byte ${num(record.offset)}`), record.note && el("p.note", {}, record.note),
    el("table.bytes", {}, el("tbody", {}, record.fields.map((f, n) => el("tr", { key: n }, el("td", {}, num(f.at)), el("td", {}, el("b", {}, f.name), el("small", {}, plain(f.says)), el("code", {}, f.data.length ? f.data.slice(0, 48).map((byte) => byte.toString(16).padStart(2, "0")).join(" ") + (f.size > 48 ? " ..." : "") : f.size ? "not shown without --bodies" : "")), el("td", {}, plural(f.size, "byte"))))))))];
}

function ofFile(key, T, now) {
  const f = T.file.get(key);
  if (!f) return [el("p.void", {}, "There is no such file at this row.")];
  let live = 0, dead = 0;
  for (const [each, r] of T.rec) if (each.startsWith(key + "/")) { if (r[2]) live++; else dead++; }
  return [el("dl", {}, line("size", bytes(f[0])), line("in the write buffer", bytes(f[0] - f[1])), line("written, not synced", bytes(f[1] - f[2])), line(now.synced, bytes(f[2])),
    line("live records", `${num(live)}, ${bytes(f[0] - f[3])}`), line("garbage", `${num(dead)} records known, ${bytes(f[3])}`), line("state", f[4] || "closed, read by whoever wants to"))];
}

export function inspector(selected, T, now) {
  if (!selected) return null;
  const { kind, id } = selected, body = { actor: ofActor, message: ofMessage, record: ofRecord, file: ofFile, entry: ofEntry }[kind](id, T, now);
  const title = { actor: () => named(T.actor.get(id)?.[0] ?? "gone"), message: () => "m" + id, record: () => "m" + (T.rec.get(id)?.[0] ?? "?"), file: () => id.split("/")[1] + ".rdq", entry: () => (T.entry.get(id)?.[0] ? "m" + T.entry.get(id)[0] : `number ${num(placeOf(id)[1][1])}`) }[kind]();
  return el("div.inspector", { role: "dialog", tabindex: "-1", "aria-label": KINDS[kind], key: "inspector" }, el("button.close", { "aria-label": "close", on: { click: () => now.select(null) } }, "\u00d7"),
    el("h2", {}, KINDS[kind]), el("p.title", {}, title), body);
}
