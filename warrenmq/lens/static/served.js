// The page from a server: a recorded trace, or one that is being written.
import { Lens } from "./app.js";
import { tapeOf } from "./tape.js";

const MOST = 400_000;  // rows of a live trace that the page keeps
const root = document.getElementById("app");

async function get(what) {
  const answer = await fetch(what);
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  return answer;
}

// the answers to questions, asked once
function reader(draw, question) {
  const known = new Map();
  return (...what) => {
    const key = what.join("/");
    if (!known.has(key)) {
      known.set(key, null);
      get(question(...what)).then((answer) => answer.json()).then((found) => known.set(key, found), (error) => known.set(key, { error: String(error.message) })).then(draw);
    }
    return known.get(key);
  };
}

const tape = tapeOf(await (await get("tape")).text());
document.title = `${tape.head.title}: the lens`;
let connected = tape.head.live;
const options = { live: () => connected, bytes: tape.head.bytes ? reader(() => lens.render(false), (store, file, offset, size) => `bytes?store=${store}&file=${file}&offset=${offset}&size=${size}`) : undefined,
  entry: tape.head.bytes ? reader(() => lens.render(false), (queue, priority, seq) => `index?queue=${encodeURIComponent(queue)}&priority=${priority}&seq=${seq}`) : undefined };
const lens = globalThis.lens = new Lens(root, tape, options).start();
if (tape.head.live) {
  if (!location.hash.includes("row=") || lens.state.at >= tape.last) lens.show(tape.last, {}, false, false);
  const events = new EventSource(`events?after=${tape.last}`);
  events.onerror = () => { connected = false; lens.render(false); };
  events.onopen = () => { connected = true; lens.render(false); };
  events.onmessage = (event) => {
    const more = JSON.parse(event.data);
    if (more.anew) { location.reload(); return; }
    const follows = lens.state.at >= tape.last && !lens.state.playing;
    tape.add(more.n, more.text, more.fresh);
    tape.mark(more.marked);
    Object.assign(tape.head, { runs: more.runs, chapters: more.chapters, violations: more.violations });
    if (follows) { lens.show(tape.last, {}, false, false); tape.trim(MOST); } else lens.render(false);
  };
}
