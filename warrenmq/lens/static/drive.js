// The desk of the drive: commands for one run, or for one of each profile at a time.  Each goes to the server, which runs the real actors; the rows
// that it brings go to the frames.  The address of the page holds the runs: script, seed and choices.
import { el, named, num, patch } from "./dom.js";

const hash = new URLSearchParams(location.hash.slice(1)), given = hash.get("token");
if (given) sessionStorage.setItem("warrenmq-drive", given);
const token = given ?? sessionStorage.getItem("warrenmq-drive") ?? "";
const SIZES = [[300, "300 B"], [9_000, "9 kB"], [60_000, "60 kB"]], COUNTS = [1, 10, 100], OPERATIONS = [[0, "now"], [1, "before the next write"], [2, "before the 2nd write"], [3, "before the 3rd write"], [5, "before the 5th write"], [8, "before the 8th write"]];
const held = (size) => (size === null ? "There is no message to give." : `A message of ${num(size)} bytes is held until it is acked or rejected.`);
const RESULTS = { get: held, take: held, bit_flip: (place) => `A bit of ${place} has rotted.` };
const chosen = { to: "", size: 300, count: 1, persistent: true, hold: false, operations: 0, actor: "", file: "" };
let told = { runs: [], script: "" }, said = [], coming = Promise.resolve(), shown = 0, written = 0;

const frame = (profile) => document.getElementById(profile)?.contentWindow?.lens;
const lenses = () => told.runs.map((run) => frame(run.profile)).filter(Boolean);
const forkable = (run) => Math.max(1, frame(run.profile)?.state.at ?? 0);
const short = (name) => name.replace(/^queue:/, "");

async function ask(path, body) {
  const answer = await fetch(path, body && { method: "POST", headers: { "x-lens-token": token }, body: JSON.stringify(body) });
  return answer.status === 403 ? { error: "This page has no token: open the address that the start printed." } : answer.json();
}

const asking = (path, body) => (coming = coming.catch(() => null).then(() => carriedOut(path, body)));  // one after the other

async function carriedOut(path, body) {
  const after = Object.fromEntries(told.runs.map((run) => [run.profile, frame(run.profile)?.tape.last]));
  const began = performance.now(), answer = await ask(path, { ...body, after }).catch((error) => ({ error: String(error.message) }));
  said = answer.error ? [answer.error] : [];
  if (answer.runs) {
    told = answer;
    for (const run of told.runs) {
      const words = run.error ?? (run.result === undefined ? "" : RESULTS[body.do]?.(run.result));
      if (words) said.push(told.runs.length > 1 ? `${run.profile}: ${words}` : words);
    }
    const before = new Set(told.runs.map((run) => run.profile).filter(frame));
    if (before.size < told.runs.length || document.querySelectorAll("iframe").length > told.runs.length) draw();
    await Promise.all(told.runs.filter((run) => before.has(run.profile)).map((run) => frame(run.profile).renew(path === "do" ? run.news : null)));
  }
  drive.took.push(performance.now() - began);
  draw();
}

const command = (body) => asking("do", body);

// what the frames ask and tell
const drive = globalThis.drive = {
  command, run: (profile) => told.runs.find((run) => run.profile === profile), took: [],
  moved: () => { cancelAnimationFrame(shown); shown = requestAnimationFrame(draw); },
};

function address() {  // not at every step: to write it takes the browser longer than to draw the picture
  const links = told.runs.map((run) => run.link).join(","), at = lenses().map((lens) => lens.state.at).join(",");
  if (links) history.replaceState(null, "", `#run=${links}${at ? "&row=" + at : ""}`);
}

function desk() {
  const lens = lenses()[0], T = lens?.T, first = told.runs[0], open = told.runs.some((run) => run.open), past = lenses().some((each) => each.state.at < each.tape.last);
  const queues = [...(T?.queue.keys() ?? [])], exchanges = [...(T?.exchange.keys() ?? [])].filter((name) => name && !name.startsWith("amq."));
  const places = [...queues.map((name) => [`queue:${name}`, name]), ...exchanges.map((name) => [`exchange:${name}`, `${name}, an exchange`])];
  if (!places.some(([value]) => value === chosen.to)) chosen.to = places[0]?.[0] ?? "queue:orders";
  const [kind, ...name] = chosen.to.split(":"), to = { [kind]: name.join(":") }, queue = kind === "queue" ? name.join(":") : queues[0] ?? "orders";
  const actors = [...(T?.actor.values() ?? [])].filter((actor) => actor[3] === "up" && !["client", "broker", "scenario"].includes(actor[1])).map((actor) => (actor[1] === "QueueProcess" ? "queue:" : "") + actor[0]);
  const able = new Set(told.runs.flatMap((run) => run.can_run));
  const button = (label, body, more = {}) => el("button", { disabled: !!more.off, title: more.title, class: more.class, on: { click: () => command(body) } }, label);
  const pick = (what, label, options, change) => el("select", { value: String(chosen[what]), "aria-label": label, on: { change: (e) => { chosen[what] = typeof chosen[what] === "number" ? +e.target.value : e.target.value; change?.(); draw(); } } }, options.map(([value, words]) => el("option", { value: String(value) }, named(words))));
  const tick = (what, words) => el("label.tick", {}, el("input", { type: "checkbox", ...(chosen[what] ? { checked: "" } : {}), on: { change: (e) => { chosen[what] = e.target.checked; draw(); } } }), words);
  const part = (title, ...what) => el("section", { key: title }, el("h2", {}, title), what);
  const holding = () => (chosen.hold ? { hold: true } : {}), off = !open;
  const profiles = told.runs.map((run) => run.profile).join("+");
  return [
    el("h1", {}, el("b", {}, "warrenmq"), " the drive"), el("p.script", {}, named(told.script)),
    said.length > 0 && el("p.said", { key: "said", role: "status" }, said.map((words) => el("span", {}, named(words)))),
    part("Whose turn is it?", el("p", {}, button("the seed decides", { do: "turn" }), [...able].map((actor) => button(named(short(actor)), { do: "turn", actor }, { class: "turn", title: `one turn for ${actor}: to its next wait, or to its next use of the disk` }))),
      !able.size && el("p.note", {}, "Nobody has anything to do."),
      el("p", {}, button("until all is quiet", { do: "settle" }), button("50 ms pass", { do: "sleep", ms: 50 }, { off }), button("20 s pass", { do: "sleep", ms: 20_000 }, { off }))),
    part("The application", el("p", {}, pick("to", "where to", places.length ? places : [[chosen.to, queue]]), pick("size", "size", SIZES), pick("count", "how many", COUNTS.map((n) => [n, n + "\u00d7"])), button("publish", { do: "publish", ...to, size: chosen.size, count: chosen.count, persistent: chosen.persistent, ...holding() }, { off, class: "main" })),
      el("p", {}, tick("persistent", "persistent"), tick("hold", "leave it in the mailboxes")),
      el("p", {}, button("get", { do: "get", queue, ...holding() }, { off }), button("consume", { do: "consume", queue, ...holding() }, { off, title: "a consumer with a prefetch of 10" }), button("take", { do: "take", queue }, { off, title: "the consumer's next delivery" }), button("ack", { do: "ack", queue, ...holding() }, { off, title: "the oldest delivery that is held" }), button("reject", { do: "reject", queue, requeue: true, ...holding() }, { off, title: "the oldest one goes back to the queue" })),
      el("p", {}, button("declare a queue", { do: "declare", queue: `queue-${queues.length + 1}` }, { off }), button("declare an exchange", { do: "declare", exchange: `fanout-${exchanges.length + 1}`, type: "fanout" }, { off }), exchanges.map((exchange) => button(["bind ", named(queue), " to ", named(exchange)], { do: "bind", queue, exchange }, { off })))),
    part("Trouble", !open && el("p", {}, el("button.main", { on: { click: () => command({ do: "open" }) } }, "open the broker again")),
      el("p", {}, pick("actor", "kill a process", [["", "kill a process"], ...actors.map((actor) => [actor, short(actor)])], () => { const actor = chosen.actor; chosen.actor = ""; if (actor) command({ do: "kill", actor }); }), button("kill -9", { do: "crash" }, { title: "the whole process ends where it stands" })),
      el("p", {}, button("power cut", { do: "power_cut", operations: chosen.operations }), pick("operations", "when", OPERATIONS)),
      el("p", {}, button("disk full", { do: "disk_full", free: 0 }), button("room again", { do: "disk_full", free: -1 }), button("memory full", { do: "memory", used: 2 ** 34 }, { title: "above the watermark: publishers wait" }), button("memory free", { do: "memory", used: 0 })),
      el("p", {}, button("a bit rots", { do: "bit_flip", ...(chosen.file ? { path: chosen.file } : {}) }), pick("file", "in which file", [["", "anywhere"], ...(first?.files ?? []).map((path) => [path, path.split("/").slice(-2).join("/")])])),
      open && el("p", {}, button("close the broker", { do: "close" }, { title: "an orderly stop" }))),
    part("What was chosen", el("ol.came", {}, (first?.came ?? []).map(([words, row], i) => el("li", { key: i }, el("button", { class: lens && lens.state.at === row ? "here" : "", title: "what it led to", on: { click: () => told.runs.forEach((run) => frame(run.profile)?.go(run.came[i]?.[1] ?? run.rows)) } }, named(words), el("span.no", {}, num(row))))).slice(-30)),
      past && el("p", {}, el("button.main", { on: { click: () => asking("fork", { rows: Object.fromEntries(told.runs.map((run) => [run.profile, forkable(run)])) }) } }, `fork at row ${told.runs.filter((run) => frame(run.profile)).map((run) => num(forkable(run))).join(" and ")}`), el("span.note", {}, ` another run, the same up to there${told.runs.some((run) => forkable(run) < run.script_rows) ? ", where its script ends" : ""}`))),
    part("Profile", el("p.choice", { role: "group", "aria-label": "profile" }, [["classic", "classic"], ["modern", "modern"], ["classic+modern", "both, side by side"]].map(([value, words]) => el("button", { "aria-pressed": String(profiles === value), title: "from the script's beginning", on: { click: () => profiles !== value && asking("beside", { profiles: value.split("+") }) } }, words)))),
    part("This run", el("p.note", {}, "The address of this page is this run: script, seed and choices. It makes the same rows wherever the lesson is served."), el("p", {}, el("button", { on: { click: () => { address(); navigator.clipboard.writeText(location.href).then(() => { said = ["Copied."]; draw(); }); } } }, "copy the address"))),
  ];
}

function draw() {
  cancelAnimationFrame(shown);
  clearTimeout(written);
  written = setTimeout(address, 200);
  patch(document.getElementById("desk"), desk());
  const rows = (hash.get("row") ?? "").split(",");
  patch(document.getElementById("runs"), told.runs.map((run, i) => el("iframe", { key: run.profile, id: run.profile, title: `the lens on the run under the ${run.profile} profile`, src: `view/${run.profile}/${rows[i] ? "#row=" + rows[i] : ""}` })));
}

addEventListener("keydown", (event) => { if (!["SELECT", "INPUT"].includes(event.target.tagName) && !(event.target.tagName === "BUTTON" && [" ", "Enter"].includes(event.key))) for (const lens of lenses()) lens.key(event); });
const links = hash.get("run");
told = await ask("now");
if (links && links !== told.runs.map((run) => run.link).join(",")) {
  const made = await ask("again", { links: links.split(",") });
  if (made.runs) told = made; else said = [made.error];
}
document.title = `the drive: ${told.script}`;
document.body.dataset.ready = "1";
draw();
address();
