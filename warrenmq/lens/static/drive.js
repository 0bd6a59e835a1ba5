// The drive: the page on a run that the reader steers.  Each command goes to the server, which runs the real actors and sends the rows again.
import { Lens } from "./app.js";
import { el, named, num } from "./dom.js";
import { tapeOf } from "./tape.js";

const root = document.getElementById("app");
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) { sessionStorage.setItem("warrenmq-drive", given); history.replaceState(null, "", location.pathname); }
const token = given ?? sessionStorage.getItem("warrenmq-drive") ?? "";

let now = { can_run: [], open: true, link: "" }, said = "", busy = false, queue = "", lens = null;

const read = async () => tapeOf(await (await fetch("tape")).text());

async function ask(path, body) {
  const answer = await fetch(`../drive${path}`, { method: "POST", headers: { "x-lens-token": token }, body: JSON.stringify(body) });
  return answer.status === 403 ? { error: "this page has no token: open the address that the start printed" } : answer.json();
}

async function command(body, path = "") {
  if (busy) return;
  busy = true;
  const answer = await ask(path, body).catch((error) => ({ error: String(error.message) }));
  if (answer.can_run) now = answer;
  said = answer.error ?? (typeof answer.result === "string" || typeof answer.result === "number" ? `done: ${answer.result}` : "");
  lens.tape = await read();
  busy = false;
  lens.show(lens.tape.last, { playing: false });
}

function panel(picture) {
  const queues = Object.keys(Object.fromEntries(lens?.T?.queue ?? [])), actors = [...(lens?.T?.actor ?? new Map()).values()].filter((actor) => actor[3] === "up" && !["client", "broker", "scenario"].includes(actor[1])).map((actor) => actor[0]);
  if (!queues.includes(queue)) queue = queues[0] ?? "orders";
  const button = (label, body, path, more = {}) => el("button", { ...more, on: { click: () => command(body, path) } }, label);
  const line = (title, ...what) => el("div.asks", {}, el("h3", {}, title), el("p", {}, what));
  const last = lens && lens.state.at < lens.tape.last;
  return el("section.panel.drivebox", { "aria-label": "drive" }, el("h2", {}, "Drive"),
    line("Whose turn is it?", button("the seed decides", { do: "turn" }), now.can_run.map((actor) => button(named(actor.replace(/^queue:/, "")), { do: "turn", actor }, "", { class: "turn", title: `one turn for ${actor}` })), now.can_run.length ? null : el("small", {}, "nobody has anything to do")),
    line("Until all is quiet", button("settle", { do: "settle" }), button("50 ms pass", { do: "sleep", ms: 50 }), button("20 s pass", { do: "sleep", ms: 20_000 })),
    line("Application", el("select", { value: queue, "aria-label": "queue", on: { change: (e) => { queue = e.target.value; } } }, (queues.length ? queues : [queue]).map((each) => el("option", { value: each }, named(each)))),
      button("publish 300 B", { do: "publish", queue, size: 300, hold: true }), button("publish 9 kB", { do: "publish", queue, size: 9_000, hold: true }), button("ten of 9 kB", { do: "publish", queue, size: 9_000, count: 10 }), button("get", { do: "get", queue }), button("ack", { do: "ack", queue }), button("declare a queue", { do: "declare", queue: `queue-${queues.length + 1}` })),
    line("Trouble", el("select", { value: "", "aria-label": "kill a process", on: { change: (e) => { const actor = e.target.value; e.target.value = ""; if (actor) command({ do: "kill", actor }); } } }, el("option", { value: "" }, "kill..."), actors.map((actor) => el("option", { value: actor }, named(actor.replace(/^queue:/, ""))))),
      button("power cut", { do: "power_cut" }), button("power cut in 3 disk operations", { do: "power_cut", operations: 3 }), button("kill -9", { do: "crash" }), button("disk full", { do: "disk_full", free: 0 }), button("room again", { do: "disk_full", free: -1 }), button("memory full", { do: "memory", used: 2 ** 34 }), button("memory free", { do: "memory", used: 0 }), button("a bit rots", { do: "bit_flip" }), now.open ? null : button("open again", { do: "open" }, "", { class: "first" })),
    last && line("Another past", button(`fork at row ${num(picture.row)}`, { row: picture.row }, "/fork")),
    said && el("p.said", { "aria-live": "polite" }, named(said)),
    now.link && el("label.linked", {}, "this run: ", el("input", { readonly: "", value: now.link, title: "Drive.of_link(...) makes the same run again" })));
}

lens = globalThis.lens = new Lens(root, await read(), { aside: panel });
lens.start();
now = await ask("/fork", { row: lens.tape.last });
said = now.error ?? "";
if (!now.can_run) now.can_run = [];
lens.show(lens.tape.last);
