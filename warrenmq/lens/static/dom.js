// Elements from descriptions, and as few changes to the page as possible.  Text becomes text and never markup.

const SVG = "http://www.w3.org/2000/svg";

// el("li.note", { title: "...", key: 7, style: { left: "4%" }, on: { click } }, "text", el(...), ...)
export function el(name, props, ...children) {
  const [tag, ...classes] = name.split(".");
  return { tag, classes, props: props ?? {}, children: there(children) };
}

const there = (children) => children.flat(3).filter((child) => child !== null && child !== undefined && child !== false && child !== "");

export function patch(parent, children) {
  const svg = parent.namespaceURI === SVG;
  const keyed = new Map();
  for (const node of parent.childNodes) if (node.$key !== undefined) keyed.set(node.$key, node);
  let at = parent.firstChild;
  for (const child of there(children)) {
    let node;
    if (typeof child !== "object") {
      if (at && at.nodeType === 3) { node = at; if (node.data !== String(child)) node.data = child; }
      else node = document.createTextNode(child);
    } else {
      const key = child.props.key, kept = key === undefined ? at : keyed.get(key);
      const fits = kept && kept.nodeType === 1 && kept.$tag === child.tag && kept.$key === key;
      node = fits ? kept : made(child, svg);
      dress(node, child);
      patch(node, child.children);
    }
    if (node === at) at = at.nextSibling; else parent.insertBefore(node, at);
  }
  while (at) { const after = at.nextSibling; at.remove(); at = after; }
}

function made({ tag, props }, svg) {
  const node = svg || tag === "svg" ? document.createElementNS(SVG, tag) : document.createElement(tag);
  node.$tag = tag;
  node.$key = props.key;
  node.$props = {};
  node.$on = {};
  node.$heard = new Set();
  return node;
}

function dress(node, { classes, props }) {
  const name = [...classes, props.class].filter(Boolean).join(" ");
  if (node.$class !== name) { node.setAttribute("class", name); node.$class = name; }
  const before = node.$props;
  if (before.on && !props.on) node.$on = {};
  for (const each in before) if (!(each in props) && !["on", "key", "class"].includes(each)) node.removeAttribute(each);
  for (const each in props) {
    const value = props[each];
    if (each === "class" || each === "key") continue;
    if (each === "on") {
      for (const event in value) if (!node.$heard.has(event)) { node.$heard.add(event); node.addEventListener(event, (e) => node.$on[event]?.(e)); }
      node.$on = value;
    } else if (each === "style") {
      for (const what in value) if (before.style?.[what] !== value[what]) node.style.setProperty(what, value[what]);
    } else if (each === "value" && node.tagName === "SELECT") node.value = value;
    else if (before[each] !== value) { if (value === false || value === null || value === undefined) node.removeAttribute(each); else node.setAttribute(each, value === true ? "" : value); }
  }
  node.$props = props;
}

// Names are shown as they are, but for signs that would be invisible or would turn the line around.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
export const plain = (name) => String(name).replace(HIDDEN, (c) => "\u27e8U+" + c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9");
export const named = (name, props) => el("bdi", props, plain(name));

const format = new Intl.NumberFormat("en");
export const num = (n) => format.format(n).replace(/,/g, "\u202f");
export const bytes = (n) => n < 10_000 ? `${num(n)} B` : n < 10_240_000 ? `${num(Math.round(n / 1024))} KiB` : `${num(Math.round(n / 1048576))} MiB`;
export const plural = (n, word) => `${num(n)} ${word}${n === 1 ? "" : "s"}`;
