// A small virtual DOM: views are functions from the document to elements, and `render` changes only what differs, so that focus,
// selection and scroll positions survive an update. There is no way to insert markup: each text becomes a text node.

const SVG = "http://www.w3.org/2000/svg";
const CHILDREN = Symbol("children");
const HANDLERS = Symbol("handlers");
/** Attributes that are set as properties, because the attribute is only the initial value. */
const PROPERTIES = new Set(["value", "checked", "disabled", "hidden", "open"]);

/** Describes an element. A property `on…` is an event handler, `key` identifies it among its siblings, `ref` receives the element. */
export function h(tag, props, ...children) {
  return { tag, props: props ?? {}, key: props?.key, children: flat(children, []) };
}

function flat(children, into) {
  for (const child of children) {
    if (child === null || child === undefined || child === false || child === true || child === "") continue;
    if (Array.isArray(child)) flat(child, into);
    else if (typeof child === "object") into.push(child);
    else into.push({ text: String(child) });
  }
  return into;
}

/** Makes the children of an element equal to these. */
export function render(parent, ...children) {
  const focused = document.activeElement;
  patchChildren(parent, flat(children, []));
  // Moving an element to another position takes its focus.
  if (focused && focused !== document.activeElement && focused.isConnected && parent.contains(focused)) {
    focused.focus({ preventScroll: true });
  }
}

function patchChildren(parent, next) {
  const before = parent[CHILDREN] ?? [];
  const keyed = new Map();
  const plain = [];
  for (const node of before) {
    if (node.key === undefined) plain.push(node);
    else keyed.set(node.key, node);
  }
  let index = 0;
  const pairs = next.map((node) => {
    if (node.key !== undefined) {
      const old = keyed.get(node.key);
      if (old?.tag !== node.tag) return undefined;
      keyed.delete(node.key);
      return old;
    }
    const old = plain[index];
    if (old?.tag !== node.tag) return undefined;
    index += 1;
    return old;
  });
  const kept = new Set(pairs);
  for (const node of before) if (!kept.has(node)) node.element.remove();
  let at = parent.firstChild;
  next.forEach((node, position) => {
    const old = pairs[position];
    if (old) update(old, node);
    else create(node, parent);
    if (node.element === at) at = at.nextSibling;
    else parent.insertBefore(node.element, at);
  });
  parent[CHILDREN] = next;
}

function create(node, parent) {
  if (node.tag === undefined) {
    node.element = document.createTextNode(node.text);
    return;
  }
  const isSvg = node.tag === "svg" || parent.namespaceURI === SVG;
  node.element = isSvg ? document.createElementNS(SVG, node.tag) : document.createElement(node.tag);
  // Options exist before the value of their select.
  patchChildren(node.element, node.children);
  patchProps(node.element, {}, node.props);
}

function update(old, node) {
  node.element = old.element;
  if (node.tag === undefined) {
    if (old.text !== node.text) node.element.data = node.text;
    return;
  }
  patchChildren(node.element, node.children);
  patchProps(node.element, old.props, node.props);
}

function patchProps(element, before, props) {
  for (const name in before) if (!(name in props)) set(element, name, undefined);
  for (const name in props) {
    if (name === "ref") props.ref(element);
    else if (PROPERTIES.has(name) ? element[name] !== props[name] : before[name] !== props[name]) set(element, name, props[name]);
  }
}

function set(element, name, value) {
  if (name === "key" || name === "ref") return;
  if (name.startsWith("on")) listen(element, name.slice(2), value);
  else if (name === "css") for (const property in value ?? {}) element.style.setProperty(property, value[property]);
  else if (PROPERTIES.has(name)) element[name] = value ?? false;
  else if (value === undefined || value === null || value === false) element.removeAttribute(name);
  else element.setAttribute(name, value === true ? "" : String(value));
}

/** Sets the handler of an event. Not every event has a property for it: `focusin` has none. */
function listen(element, type, handler) {
  const handlers = (element[HANDLERS] ??= new Map());
  if (!handlers.has(type)) element.addEventListener(type, (event) => handlers.get(type)?.(event));
  handlers.set(type, handler);
}
