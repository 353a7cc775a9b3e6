// The page: which view is shown, the keyboard, and what comes from the proxy.

import { NeedsKeyError, follow, forgetKey, hasKey, request, setKey } from "./api.js";
import { Bench } from "./bench.js";
import { drawDetail } from "./detail.js";
import { announce, find, h, show } from "./dom.js";
import { ExchangeList } from "./list.js";

const VIEWS = ["login", "exchanges", "bench"];
let change = 0;
let store = null;
let started = false;
let asked = 0;

const list = new ExchangeList((id) => {
  list.select(id);  // at once: the address changes later, and a key may be pressed again before
  location.hash = `#/x/${id}`;
});
const bench = new Bench(failed);

function view(name) {
  for (const other of VIEWS) find(other).hidden = other !== name;
  for (const other of ["exchanges", "bench"]) {
    if (other === name) find(`to-${other}`).setAttribute("aria-current", "page");
    else find(`to-${other}`).removeAttribute("aria-current");
  }
  find("clear").hidden = name !== "exchanges";
}

/** Show what the address names. */
function route() {
  if (!started) return;
  if (location.hash === "#/bench") {
    view("bench");
    return;
  }
  view("exchanges");
  list.select(location.hash.startsWith("#/x/") ? location.hash.slice(4) : null);
  detail();
}

async function detail() {
  const id = list.selected;
  const mine = ++asked;
  if (id === null) return show(find("detail"), h("p", { class: "notice" }, "Select an exchange: its prompt, the raw reply and what became of it are shown here."));
  try {
    const exchange = await request(`exchanges/${encodeURIComponent(id)}`);
    if (mine === asked) drawDetail(find("detail"), exchange, openBench);
  } catch (error) {
    if (!failed(error) && mine === asked) show(find("detail"), h("p", { class: "notice" }, error.message));
  }
}

let showing = false;
let stale = false;

/** Show the selected exchange as it is now; changes that come meanwhile are shown after that, in one step. */
async function refresh() {
  stale = true;
  if (showing) return;
  showing = true;
  while (stale) {
    stale = false;
    await detail();
  }
  showing = false;
}

function openBench(values) {
  bench.fill(values);
  location.hash = "#/bench";
}

/** Ask for the key if that is what is wrong; return whether it is. */
function failed(error) {
  if (!(error instanceof NeedsKeyError)) return false;
  started = false;
  find("login-error").textContent = hasKey() ? "This key is not accepted." : "";
  forgetKey();
  view("login");
  find("key").focus();
  return true;
}

async function load() {
  const listed = await request("exchanges");
  change = listed.change;
  store = listed.store;
  bench.setDialects(listed.dialects);
  list.reset(listed.exchanges);
}

async function start() {
  try {
    await load();
  } catch (error) {
    if (!failed(error)) find("connection").textContent = error.message;
    return;
  }
  started = true;
  route();
  follow(() => ({ store, after: change }), received, connection).catch(failed);
}

function received(event) {
  if (event.store !== store) {  // the proxy was started anew
    load().then(detail, failed);
    return;
  }
  change = event.change;
  list.update(event);
  if (event.exchanges.some((summary) => summary.id === list.selected)) refresh();
}

function connection(state) {
  find("connection").textContent = state;
  find("connection").className = `connection ${state}`;
}

const actions = {
  j: () => list.move(1),
  k: () => list.move(-1),
  ArrowDown: () => list.move(1),
  ArrowUp: () => list.move(-1),
  Enter: () => find("detail").focus(),
  "/": () => find("filter").focus(),
  b: () => { location.hash = "#/bench"; view("bench"); find("bench-text").focus(); },
  e: () => { location.hash = "#/"; view("exchanges"); find("list").focus(); },
  "?": () => find("keys").showModal(),
};

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (!started || event.ctrlKey || event.metaKey || event.altKey || find("keys").open) return;
  if (key === "Escape" && !find("exchanges").hidden) {
    find("list").focus();
    return;
  }
  const typing = target.matches("input, textarea, select");
  const arrow = key.startsWith("Arrow");
  const inList = target === find("list") || target === document.body;
  // keys that scroll and press belong to what has the focus
  if (typing || ((arrow || key === "Enter") && !inList) || !(key in actions)) return;
  if (!find("bench").hidden && !["b", "e", "?"].includes(key)) return;
  event.preventDefault();
  actions[key]();
});

find("login-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(find("key").value.trim());
  find("key").value = "";
  start();
});
find("help").addEventListener("click", () => find("keys").showModal());
find("clear").addEventListener("click", async () => {
  try {
    await request("exchanges", { method: "DELETE" });
    await load();
    location.hash = "#/";
    announce("cleared");
  } catch (error) {
    failed(error);
  }
});
window.addEventListener("hashchange", route);
start();
