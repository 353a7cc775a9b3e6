// The bench: a reply and tools go in, and what the parser makes of them comes out as one types.

import { parse } from "./api.js";
import { copyButton, find, h, show } from "./dom.js";
import { legend, rawText, readReply, tries } from "./reply.js";

const TEXTS = ["text", "tools", "expect", "dialect", "strictness", "finish_reason"];
const SWITCHES = ["in_reasoning", "json_answer", "rescue"];
const PAUSE_MS = 120;

export class Bench {
  constructor(onError) {
    this.onError = onError;
    this.timer = 0;
    this.running = new AbortController();
    find("bench-form").addEventListener("input", () => this.later());
    find("bench-form").addEventListener("submit", (event) => event.preventDefault());
  }

  setDialects(names) {
    for (const id of ["bench-expect", "bench-dialect"]) {
      find(id).replaceChildren(find(id).firstElementChild, ...names.map((name) => h("option", {}, name)));
    }
  }

  /** Fill the form with a reply of an exchange. */
  fill(values) {
    for (const name of TEXTS) find(`bench-${name}`).value = values[name] ?? "";
    for (const name of SWITCHES) find(`bench-${name}`).checked = values[name] === true;
    this.run();
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.run(), PAUSE_MS);
  }

  async run() {
    this.running.abort();  // an answer to what was typed before would overwrite the newer one
    this.running = new AbortController();
    const { signal } = this.running;
    const body = Object.fromEntries([...TEXTS.map((name) => [name, find(`bench-${name}`).value]), ...SWITCHES.map((name) => [name, find(`bench-${name}`).checked])]);
    const result = find("bench-result");
    if (!body.text) return show(result);
    try {
      const view = await parse(body, signal);
      if (!signal.aborted) show(result, h("h3", {}, "What the parser makes of it"), legend(), rawText({ ...view, reasoning: "" }), copyButton("Copy as test case", view.case, "test case"), readReply(view.read), tries("bench tries", view, true));
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!this.onError(error)) show(result, h("p", { class: "error", role: "alert" }, error.message));
    }
  }
}
