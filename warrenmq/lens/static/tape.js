// A tape of changes: forwards, backwards, anywhere.  It knows nothing of brokers and nothing of the page.
//
// warrenmq/lens/pack.py says how a segment is packed.  Rows are numbered from 1; the header's `first` is the number of the row before the
// first one on the tape, whose state is the header's `base`.

const EVERY = 2048;  // rows between two checkpoints

export class Tape {
  constructor(head) {
    this.head = head;
    this.first = head.first ?? 0;
    this.last = this.first;
    this.words = [];
    this.shapes = [];
    this.segments = [];  // {from, n, text} until one is needed, then decoded, in their order
    this.decoded = 0;
    this.marks = [];
    this.tables = head.tables.map((_, i) => new Map(head.base?.[i] ?? []));
    this.at = this.first;
    this.undo = new Map();
    this.stops = [[this.first, this.tables.map((table) => new Map(table))]];
  }

  // -- segments

  add(n, text, fresh = false) {  // fresh: it begins a new dictionary of words and shapes
    this.segments.push({ from: this.last, n, text, fresh });
    this.last += n;
  }

  trim(most) {  // let the eldest rows go; the tape then begins at a checkpoint
    const stop = this.stops.find(([row]) => row >= this.last - most);
    if (!stop || stop[0] > this.at || stop[0] === this.first) return;
    while (this.segments.length > 1 && this.segments[0].from + this.segments[0].n <= stop[0] && this.decoded > 1) { this.segments.shift(); this.decoded--; }
    this.first = stop[0];
    this.stops = this.stops.filter(([row]) => row >= stop[0]);
    this.marks = this.marks.filter(([row]) => row > stop[0]);
  }

  mark(rows) {  // [row, mark, row, mark, ...], ascending
    for (let i = 0; i < rows.length; i += 2) this.marks.push([rows[i], rows[i + 1]]);
  }

  segment(row) {
    let low = 0, high = this.segments.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.segments[middle].from < row) low = middle; else high = middle - 1;
    }
    while (this.decoded <= low) this.decode(this.segments[this.decoded++]);  // each brings the words that later ones use
    return this.segments[low];
  }

  decode(segment) {
    const packed = JSON.parse(segment.text);
    segment.text = null;
    if (segment.fresh) { this.words = []; this.shapes = []; }
    segment.words = this.words;
    segment.shapes = this.shapes;
    this.words.push(...packed.words);
    for (const shape of packed.new) this.shapes.push(shape);
    const seen = new Map();
    segment.shape = packed.shapes;
    segment.place = packed.shapes.map((shape) => { const n = seen.get(shape) ?? 0; seen.set(shape, n + 1); return n; });
    segment.t = new Float64Array(packed.n);
    let t = packed.t;
    for (let i = 0; i < packed.n; i++) segment.t[i] = t += packed.dt[i];
    sum(packed.actors);
    segment.actors = packed.actors;
    for (const columns of Object.values(packed.columns)) columns.forEach(sum);
    segment.columns = packed.columns;
  }

  // -- rows

  row(number) {
    const segment = this.segment(number), i = number - segment.from - 1, shape = segment.shape[i], k = segment.place[i];
    const [run, event, [template, kinds], mark, move] = segment.shapes[shape], columns = segment.columns[shape];
    let c = 0;
    const next = () => columns[c++][k];
    const message = next(), back = next();
    const fillers = [...kinds].map((kind) => (kind === "i" ? next() : segment.words[next()]));
    const ends = move && move.map((parts) => joined(parts, next));
    return { run, event, template, fillers, mark, move: ends, message, cause: back ? number - back : 0, actor: segment.actors[i], t: segment.t[i] };
  }

  changes(number) {  // a list of [table, key, fields, values]
    const segment = this.segment(number), i = number - segment.from - 1, shape = segment.shape[i], k = segment.place[i];
    const [, , [, kinds], , move, changes] = segment.shapes[shape], columns = segment.columns[shape];
    let c = 2 + kinds.length;
    const next = () => columns[c++][k];
    if (move) for (const parts of move) c += parts.length - 1;
    return changes.map(([table, key, fields, kinds_]) => {
      const name = key ? joined(key, next) : next();
      const values = [];
      for (const kind of kinds_) values.push(kind === "i" ? next() : segment.words[next()]);
      return [table, name, fields, values];
    });
  }

  // -- the state

  forward() {
    const number = ++this.at, undo = [];
    for (const [table, key, fields, values] of this.changes(number)) {
      const rows = this.tables[table], old = rows.get(key);
      undo.push(table, key, old);
      if (fields === -1) rows.delete(key);
      else if (!fields) rows.set(key, values[0]);
      else {
        const value = old ? old.slice() : [];
        for (let place = 0, v = 0; v < values.length; place++) if (fields >> place & 1) value[place] = values[v++];
        rows.set(key, value);
      }
    }
    this.undo.set(number, undo);
    if ((number - this.first) % EVERY === 0 && number > this.stops[this.stops.length - 1][0]) {
      this.stops.push([number, this.tables.map((table) => new Map(table))]);
    }
  }

  back() {
    const undo = this.undo.get(this.at--);
    for (let i = undo.length - 3; i >= 0; i -= 3) {
      if (undo[i + 2] === undefined) this.tables[undo[i]].delete(undo[i + 1]); else this.tables[undo[i]].set(undo[i + 1], undo[i + 2]);
    }
  }

  seek(number) {
    number = Math.max(this.first, Math.min(this.last, number));
    let stop = this.stops[0];
    for (const each of this.stops) if (each[0] <= number) stop = each;
    const backwards = this.at > number && this.at - number < number - stop[0] && this.undo.has(number + 1) && this.undo.has(this.at);
    if (!backwards && (number < this.at || stop[0] > this.at)) {
      this.tables = stop[1].map((table) => new Map(table));
      this.at = stop[0];
      this.undo.clear();
    }
    while (this.at < number) this.forward();
    while (this.at > number) this.back();
    if (this.undo.size > 4 * EVERY) for (const key of this.undo.keys()) { if (this.undo.size <= 2 * EVERY) break; this.undo.delete(key); }
  }

  touched() {  // of the present row: "table:key" of what is new, and [table, key, old] of what is gone
    const changed = new Set(), gone = [], undo = this.undo.get(this.at) ?? [];
    for (let i = 0; i < undo.length; i += 3) {
      if (this.tables[undo[i]].has(undo[i + 1])) changed.add(undo[i] + ":" + undo[i + 1]);
      else if (undo[i + 2] !== undefined) gone.push([undo[i], undo[i + 1], undo[i + 2]]);
    }
    return { changed, gone };
  }

  // -- ways through

  why(number) {
    const chain = [];
    while (chain.length < 14) {
      number = this.row(number).cause;
      if (number <= this.first) break;
      chain.push(number);
    }
    return chain;
  }

  next(from, way, wanted) {
    for (let row = from + way; row > this.first && row <= this.last; row += way) if (wanted(row)) return row;
    return 0;
  }

  marked(from, way, mark) {
    const found = this.marks.filter(([row, kind]) => kind === mark && (way > 0 ? row > from : row < from));
    return found.length ? found[way > 0 ? 0 : found.length - 1][0] : 0;
  }
}

function sum(numbers) {
  for (let i = 1; i < numbers.length; i++) numbers[i] += numbers[i - 1];
}

function joined(parts, next) {
  let text = parts[0];
  for (let i = 1; i < parts.length; i++) text += next() + parts[i];
  return text;
}

export async function unpacked(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

export function tapeOf(text) {  // the lines of an export: the header, then the segments
  const lines = text.split("\n"), head = JSON.parse(lines[0]), tape = new Tape(head);
  head.segments.forEach((n, i) => tape.add(n, lines[i + 1], head.fresh?.includes(i)));
  tape.mark(head.marked);
  return tape;
}
