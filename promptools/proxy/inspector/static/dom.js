// Elements, made of text: what models, servers and apps wrote is never parsed as HTML.

export const find = (id) => document.getElementById(id);

/** Return an element; a property that begins with `on` is a listener, one that is null or false is left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Return text in its own lines; one that is long scrolls, so it takes the focus. */
export const block = (label, ...children) => h("pre", { tabindex: "0", role: "group", "aria-label": label }, children);

/** Show a message for people and screen readers alike. */
export function announce(text) {
  const status = find("status");
  status.textContent = text;
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => { status.textContent = ""; }, 2500);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // no permission, or a page that is not from a secure origin
    const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(`${what} copied`);
}

export const copyButton = (label, text, what) => h("button", { type: "button", "data-key": label, onclick: () => copy(text, what) }, label);

// What is unfolded stays so when an exchange that is running is shown again.
const unfolded = new Map();

/** Return a part that can be unfolded; `key` is what it is remembered by. */
export function fold(key, summary, open, ...children) {
  const element = h("details", { open: unfolded.get(key) ?? open }, h("summary", { "data-key": key }, summary), children);
  element.addEventListener("toggle", () => unfolded.set(key, element.open));
  return element;
}

/** Replace the children of an element, and keep the focus where it was. */
export function show(element, ...children) {
  const key = element.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (key) [...element.querySelectorAll("[data-key]")].find((other) => other.dataset.key === key)?.focus();
}

export const milliseconds = (ms) => ms === null ? "–" : ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(2)} s`;
export const bytes = (count) => count < 1024 ? `${count} B` : count < 2 ** 20 ? `${(count / 1024).toFixed(1)} KiB` : `${(count / 2 ** 20).toFixed(1)} MiB`;
export const plural = (count, one, many = `${one}s`) => `${count} ${count === 1 ? one : many}`;
