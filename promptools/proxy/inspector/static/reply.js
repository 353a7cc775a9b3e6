// A reply with each part of its text coloured, what was read of it, and the strategies that were tried.

import { block, fold, h, plural } from "./dom.js";

const NAMES = { reasoning: "reasoning", call: "call", malformed: "malformed", discarded: "discarded", content: "text" };

const part = ({ kind, text, label }) => h("span", {
  class: `part ${kind}`, "data-label": kind === "content" ? null : [kind === "discarded" ? null : NAMES[kind], label].filter(Boolean).join(" · "), title: label || NAMES[kind],
}, text);

export const legend = () => h("p", { class: "legend" }, Object.entries(NAMES).map(([kind, name]) => h("span", { class: `swatch ${kind}` }, name)));

/** Return the text of a choice; reasoning in a field of its own comes first, calls that the server parsed come last. */
export function rawText(choice) {
  const native = choice.native_calls ?? [];
  return h("div", { class: "raw" }, block("Raw reply",
    choice.reasoning ? part({ kind: "reasoning", text: choice.reasoning, label: "a field of its own" }) : null,
    choice.parts.map(part),
    native.map((call) => part({ kind: "call", text: `${call.name}(${call.arguments})`, label: "parsed by the server" })),
    !choice.reasoning && !choice.parts.length && !native.length ? h("em", {}, "empty") : null));
}

const fixes = (list) => list.length ? h("ul", { class: "fixes" }, list.map((fix) => h("li", {}, fix))) : null;

/** Return what was read: calls with their fixes, malformed calls, and the text. */
export function readReply(read, { text = true } = {}) {
  return [
    read.calls.map((call) => h("div", { class: "call-card" },
      h("p", {}, h("code", { class: "name" }, call.name), h("span", { class: "muted" }, ` ${call.dialect}${call.unknown_tool ? ", a tool that nobody offered" : ""}`)),
      block("Arguments", pretty(call.arguments)),
      fixes(call.fixes))),
    read.malformed.map((piece) => h("div", { class: "call-card bad" },
      h("p", {}, h("code", { class: "name" }, piece.name || "?"), h("span", { class: "muted" }, ` malformed: ${piece.why}`)),
      h("p", {}, piece.message),
      piece.raw ? block("Text of the call", piece.raw) : null)),
    fixes(read.fixes),
    text && read.reasoning.trim() ? [h("h4", {}, "Reasoning"), h("div", { class: "prose muted" }, block("Reasoning", read.reasoning))] : null,
    text && read.content.trim() ? [h("h4", {}, "Text"), h("div", { class: "prose" }, block("Text", read.content))] : null,
    !read.calls.length && !read.malformed.length && !(text && read.content.trim()) ? h("p", { class: "muted" }, text ? "Neither a call nor text." : "No call.") : null,
    read.finish_reason ? h("p", { class: "muted" }, `finish reason: ${read.finish_reason}`) : null,
  ];
}

export function tries(key, view, open) {
  if (!view.tries?.length) return h("p", { class: "muted" }, "Nothing in the text looked like the beginning of a call.");
  const rows = view.tries.map((attempt) => h("tr", { class: attempt.outcome },
    h("th", { scope: "row" }, attempt.strategy), h("td", {}, attempt.on), h("td", { class: "number" }, attempt.span.join("–")),
    h("td", {}, h("span", { class: `outcome ${attempt.outcome}` }, attempt.outcome)), h("td", { class: "reason" }, attempt.why)));
  const heads = ["strategy", "began at", "characters", "outcome", "why"].map((name) => h("th", { scope: "col" }, name));
  return fold(key, `${plural(view.tries.length, "strategy", "strategies")} tried`, open,
    h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Strategies" }, h("table", {}, h("thead", {}, h("tr", {}, heads)), h("tbody", {}, rows))),
    view.tries_left_out ? h("p", { class: "muted" }, `${view.tries_left_out} more are not shown.`) : null);
}

export function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
