// The list of exchanges, the newest first: a listbox, so that one key moves and a screen reader knows where it is.

import { find, h, milliseconds, plural } from "./dom.js";

const STATES = { running: "running", ok: "ok", healed: "healed", failed: "failed", disconnected: "client left" };

export class ExchangeList {
  constructor(onSelect) {
    this.exchanges = new Map();
    this.selected = null;
    this.onSelect = onSelect;
    this.filter = "";
    find("filter").addEventListener("input", (event) => { this.filter = event.target.value.toLowerCase(); this.draw(); });
    find("list").addEventListener("click", (event) => {
      const row = event.target.closest("[role=option]");
      if (row) this.onSelect(row.dataset.id);
    });
  }

  reset(summaries) {
    this.exchanges = new Map(summaries.map((summary) => [summary.id, summary]));
    this.draw();
  }

  update({ exchanges, first }) {
    for (const summary of exchanges) this.exchanges.set(summary.id, summary);
    for (const [id, summary] of this.exchanges) if (summary.number < first) this.exchanges.delete(id);
    this.draw();
  }

  get shown() {
    return [...this.exchanges.values()].filter((summary) => this.matches(summary)).sort((a, b) => b.number - a.number);
  }

  matches(summary) {
    const text = [summary.model, summary.provider, summary.mode, summary.api, STATES[summary.state], summary.status, summary.question, summary.request_id, ...summary.calls].join(" ").toLowerCase();
    return this.filter.split(/\s+/).every((word) => text.includes(word));
  }

  /** Select the exchange that is so many rows further down. */
  move(step) {
    const rows = this.shown;
    if (!rows.length) return;
    const at = rows.findIndex((summary) => summary.id === this.selected);
    const next = at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + step));
    this.onSelect(rows[next].id);
  }

  select(id) {
    this.selected = id;
    this.draw();
    find("list").querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }

  draw() {
    const rows = this.shown;
    const list = find("list");
    list.replaceChildren(...rows.map((summary) => this.row(summary)));
    if (rows.some((summary) => summary.id === this.selected)) list.setAttribute("aria-activedescendant", `x-${this.selected}`);
    else list.removeAttribute("aria-activedescendant");
    list.hidden = !rows.length;
    find("empty").hidden = rows.length > 0;
    find("empty").textContent = this.exchanges.size ? "No exchange matches the filter." : "No exchange yet. Point an app at this proxy, and it shows up here.";
  }

  row(summary) {
    const { id, state, question, calls, fixes, attempts, malformed, repeated } = summary;
    const marks = [
      attempts > 1 ? plural(attempts, "attempt") : null,
      fixes ? plural(fixes, "fix", "fixes") : null,
      malformed ? `${malformed} malformed` : null,
      repeated ? "repeated call" : null,
    ].filter(Boolean).join(", ");
    return h("li", { role: "option", id: `x-${id}`, "data-id": id, "aria-selected": String(id === this.selected) },
      h("span", { class: `badge ${state}` }, STATES[state]),
      h("span", { class: "model" }, summary.model || summary.api),
      h("time", { class: "muted", datetime: new Date(summary.at).toISOString() }, new Date(summary.at).toLocaleTimeString()),
      h("span", { class: "question" }, question || h("em", {}, "no question")),
      h("span", { class: "muted facts" }, [summary.mode, calls.length ? calls.join(", ") : null, marks, milliseconds(summary.ms)].filter(Boolean).join(" · ")));
  }
}
