// A page is a tree of plain objects; `patch` changes only what differs, so focus, scrolling and selection stay.

const SVG = "http://www.w3.org/2000/svg";
const PROPERTIES = new Set(["value", "checked", "disabled", "indeterminate", "selected", "open"]);
const OURS = new Set(["key", "hook", "style"]);
const trees = new WeakMap();

export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, key: props?.key, children: flat(children) };
}

function flat(children) {
  const found = [];
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === true) continue;
    found.push(typeof child === "object" ? child : { text: String(child) });
  }
  return found;
}

// Makes the children of `parent` what the tree says. Nodes are matched by key, others by kind and order.
export function patch(parent, tree, svg = false) {
  const wanted = flat([tree]);
  const old = matcher(parent);
  const nodes = wanted.map((each) => old.take(each) ?? null);
  old.rest().forEach(remove);
  wanted.forEach((each, index) => {
    const node = nodes[index] ?? create(each, svg);
    // Placed before it is filled, so that a hook finds itself in the document.
    const there = parent.childNodes[index] ?? null;
    if (there !== node) parent.insertBefore(node, there);
    update(node, each, svg);
  });
}

function matcher(parent) {
  const keyed = new Map();
  const plain = [];
  for (const node of parent.childNodes) {
    const key = trees.get(node)?.key;
    if (key === undefined) plain.push(node);
    else keyed.set(key, node);
  }
  return {
    take(wanted) {
      if (wanted.key !== undefined) return taken(keyed, wanted);
      const index = plain.findIndex((node) => kind(node) === (wanted.tag ?? "#text"));
      return index < 0 ? undefined : plain.splice(index, 1)[0];
    },
    rest: () => [...keyed.values(), ...plain],
  };
}

function taken(keyed, wanted) {
  const node = keyed.get(wanted.key);
  if (node === undefined || kind(node) !== wanted.tag) return undefined;
  keyed.delete(wanted.key);
  return node;
}

function kind(node) {
  return trees.get(node)?.tag ?? node.nodeName.toLowerCase();
}

function create(wanted, svg) {
  if (wanted.tag === undefined) return document.createTextNode(wanted.text);
  const inSvg = svg || wanted.tag === "svg";
  return inSvg ? document.createElementNS(SVG, wanted.tag) : document.createElement(wanted.tag);
}

function update(node, wanted, svg) {
  if (wanted.tag === undefined) {
    if (node.data !== wanted.text) node.data = wanted.text;
    return;
  }
  const before = trees.get(node);
  trees.set(node, wanted);
  const inSvg = svg || wanted.tag === "svg";
  setAll(node, before?.props ?? {}, wanted.props);
  if (!wanted.props.hook?.opaque) patch(node, wanted.children, inSvg);
  setValue(node, before?.props, wanted.props);
  const hook = wanted.props.hook;
  if (hook) (before === undefined ? hook.mount : hook.update)?.(node);
}

function setAll(node, before, now) {
  for (const name of Object.keys(before)) {
    if (!(name in now)) set(node, name, null);
  }
  for (const [name, value] of Object.entries(now)) {
    if (name !== "value") set(node, name, value, before[name]);
  }
  if (now.style !== undefined) setStyle(node, before.style ?? {}, now.style);
}

function set(node, name, value, before) {
  if (OURS.has(name)) return;
  // What it returns must not count: false would keep a link from leading anywhere.
  if (name.startsWith("on")) node[name] = value ? (event) => void value(event) : null;
  else if (PROPERTIES.has(name)) setProperty(node, name, value);
  else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (value !== before) node.setAttribute(name, value === true ? "" : String(value));
}

function setProperty(node, name, value) {
  const wanted = value ?? (name === "value" ? "" : false);
  if (node[name] !== wanted) node[name] = wanted;
}

// After the children, since a select takes only a value that it offers; and never under the hands of a person.
function setValue(node, before, now) {
  if (!("value" in now)) return;
  if (before === undefined) setProperty(node, "value", now.value);
  else if (before.value !== now.value && node !== document.activeElement) {
    setProperty(node, "value", now.value);
  }
}

// Through the object model: attributes of style are forbidden by the policy of the page.
function setStyle(node, before, now) {
  for (const name of Object.keys(before)) {
    if (!(name in now)) node.style.removeProperty(name);
  }
  for (const [name, value] of Object.entries(now)) {
    if (before[name] !== value) node.style.setProperty(name, value);
  }
}

function remove(node) {
  farewell(node);
  node.remove();
}

function farewell(node) {
  for (const child of node.childNodes) farewell(child);
  trees.get(node)?.props?.hook?.unmount?.(node);
}
