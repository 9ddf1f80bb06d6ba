// Builds elements. Texts become text nodes, so nothing that a device or an operator wrote is ever markup.

export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, properties, children);
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  fill(element, attributes, children);
  return element;
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "href" && !/^[/#]/.test(value)) throw new Error(`${value} leads out of the console`);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  add(element, children);
}

export function add(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  add(element, children);
}

// A link to a page of the console; names are encoded.
export function link(path, ...children) {
  return h("a", { href: path }, ...children);
}

// Shows another page of the console, as a click on a link does; app.js listens.
export function go(path) {
  history.pushState(null, "", path);
  dispatchEvent(new PopStateEvent("popstate"));
  scrollTo(0, 0);
}

export function path(...parts) {
  return "/" + parts.map((part) => encodeURIComponent(String(part))).join("/");
}

export function badge(kind, text) {
  return h("span", { class: `badge ${kind}` }, text);
}

export function card(title, ...children) {
  return h("section", { class: "card" }, title && h("h2", {}, title), ...children);
}

export function facts(entries) {
  const shown = entries.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return h("dl", { class: "facts" }, shown.map(([name, value]) => h("div", { class: String(value).length > 48 && "whole" }, h("dt", {}, name), h("dd", {}, value))));
}

export function empty(text) {
  return h("p", { class: "quiet" }, text);
}
