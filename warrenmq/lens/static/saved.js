// The page as one file: the trace is in it.
import { Lens } from "./app.js";
import { tapeOf, unpacked } from "./tape.js";

const began = performance.now();
const tape = tapeOf(await unpacked(document.getElementById("trace").textContent));
document.title = `${tape.head.title}: the lens`;
globalThis.lens = new Lens(document.getElementById("app"), tape).start();
globalThis.lens.opened = performance.now() - began;
