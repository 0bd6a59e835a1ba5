// The page from a server: a recorded trace, or one that is being written.
import { Lens } from "./app.js";
import { asker, bytesOf, indexOf } from "./inspector.js";
import { tapeOf } from "./tape.js";

const MOST = 400_000;  // rows of a live trace that the page keeps
const root = document.getElementById("app");

async function get(what) {
  const answer = await fetch(what);
  if (!answer.ok) throw new Error(`the server answers ${answer.status}`);
  return answer;
}

const tape = tapeOf(await (await get("tape")).text());
document.title = `${tape.head.title}: the lens`;
let connected = tape.head.live;
const read = asker(() => lens.render(false));
const options = { live: () => connected, bytes: tape.head.bytes ? (...record) => read(bytesOf(...record)) : undefined, entry: tape.head.bytes ? (...entry) => read(indexOf(...entry)) : undefined };
const lens = globalThis.lens = new Lens(root, tape, options).start();
if (tape.head.live) {
  if (!location.hash.includes("row=") || lens.state.at >= tape.last) lens.show(tape.last, {}, false, false);
  const events = new EventSource(`events?after=${tape.last}`);
  const note = tape.head.note;
  let gone = 0;  // a stream ends now and then and is begun again; only then the server is gone if that fails
  const told = (is, words) => { connected = is; tape.head.note = words; lens.render(false); };
  events.onerror = () => { gone ||= setTimeout(() => told(false, "not live any more: the server does not answer"), 2000); };
  events.onopen = () => { clearTimeout(gone); gone = 0; if (!connected) told(true, note); };
  events.addEventListener("ended", (event) => { events.close(); connected = false; tape.head.note = JSON.parse(event.data); lens.render(false); });
  events.onmessage = (event) => {
    const more = JSON.parse(event.data);
    if (more.anew) { location.reload(); return; }
    const follows = lens.state.at >= tape.last && !lens.state.playing;
    lens.grow(more);
    if (follows) { lens.show(tape.last, {}, false, false); tape.trim(MOST); } else lens.render(false);
  };
}
