// One run of the drive, in a frame beside the desk: the desk hands it rows as they come, and hears where it is and whose turn was chosen.
import { Lens } from "./app.js";
import { asker, bytesOf, indexOf } from "./inspector.js";
import { tapeOf } from "./tape.js";

const desk = parent.drive, profile = location.pathname.split("/").at(-2);
const read = async () => tapeOf(await (await fetch("tape")).text());
const disk = asker(() => lens.render(false)), here = () => `&row=${lens.state.at}`;
const lens = globalThis.lens = new Lens(document.getElementById("app"), await read(), {
  turn: (actor) => (desk?.run(profile)?.can_run.includes(actor) ? () => desk.command({ do: "turn", actor }) : null),
  bytes: (...record) => disk(bytesOf(...record) + here()),
  entry: (...entry) => disk(indexOf(...entry) + here()),
  moved: () => desk?.moved(),
});

// the rows that a command brought, or all rows of another run
lens.renew = async (news) => {
  if (!news || news.some((more) => more.anew)) lens.tape = await read(); else for (const more of news) lens.grow(more);
  lens.show(lens.tape.last, { playing: false });
};
lens.start();
if (!location.hash.includes("row=")) lens.show(lens.tape.last, {}, false, false);
document.title = lens.tape.head.title;
desk?.moved();
