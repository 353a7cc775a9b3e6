// All that is known of one exchange.

import { block, bytes, copyButton, fold, h, milliseconds, plural, show } from "./dom.js";
import { legend, pretty, rawText, readReply, tries } from "./reply.js";

const PURPOSES = { attempt: "attempt", forward: "passed on", template: "render the prompt" };

export function drawDetail(element, exchange, openBench) {
  show(element,
    head(exchange),
    h("div", { class: "actions" },
      exchange.request.curl ? copyButton("Copy as curl", exchange.request.curl, "curl command") : null,
      exchange.case ? copyButton("Copy as test case", exchange.case, "test case") : null,
      exchange.bench ? h("button", { type: "button", "data-key": "bench", onclick: () => openBench(exchange.bench) }, "Open in the bench") : null),
    why(exchange),
    timeline(exchange),
    exchange.sends.map((send, index) => drawSend(exchange, send, index === exchange.sends.length - 1)),
    answer(exchange),
    section("The request of the app",
      fold(`${exchange.id} request`, `${exchange.request.method} ${exchange.request.url}, ${bytes(exchange.request.size)}`, false, message(exchange.request))));
}

const section = (title, ...children) => h("section", { class: "card" }, h("h3", {}, title), children);

function head(exchange) {
  const facts = [exchange.provider, exchange.status ? `HTTP ${exchange.status}` : "no response yet", milliseconds(exchange.ms), plural(exchange.attempts, "attempt"), exchange.request_id];
  return h("header", {},
    h("h2", {}, h("span", { class: `badge ${exchange.state}` }, exchange.state), ` ${exchange.model || exchange.api}`),
    h("p", { class: "muted" }, [exchange.api, ...facts].filter(Boolean).join(" · ")),
    exchange.error ? h("p", { class: "error" }, exchange.error) : null);
}

function why(exchange) {
  const decisive = exchange.reasons.filter((reason) => reason.mode);
  return section(exchange.mode ? `Mode: ${exchange.mode}` : "Mode",
    h("ol", { class: "why" }, exchange.why.map((line) => h("li", {}, line))),
    exchange.why.length ? null : h("p", { class: "muted" }, "Nothing was sent to a server."),
    exchange.healing.requests ? h("p", { class: "muted" }, healing(exchange.healing)) : null,
    decisive.length ? h("ul", { class: "reasons" }, decisive.map((reason) => h("li", {}, reason.text))) : null,
    exchange.notes.length ? fold(`${exchange.id} notes`, plural(exchange.notes.length, "note"), false, h("ul", { class: "reasons" }, exchange.notes.map((note) => h("li", {}, note)))) : null,
    exchange.reasons.length ? fold(`${exchange.id} reasons`, "All that is known about this server and model", false,
      h("ul", { class: "reasons" }, exchange.reasons.map((reason) => h("li", {}, reason.text)))) : null);
}

/** Return what the attempts cost that failed and were followed by another. */
function healing({ requests, input_tokens: input, output_tokens: output, seconds }) {
  const tokens = input + output ? `${plural(input, "token")} of prompts and ${plural(output, "token")} of replies` : "no tokens that the server counted";
  return `Healing cost ${plural(requests, "request")}, ${tokens}, and ${milliseconds(seconds * 1000)}.`;
}

/** Return a row for each request to the server: until its response began, and while that came. */
function timeline(exchange) {
  const total = Math.max(exchange.ms, ...exchange.sends.map((send) => send.end ?? send.start), 1);
  const bar = (kind, from, to, what) => {
    const element = h("span", { class: `bar ${kind}`, title: `${what}: ${milliseconds(from)} to ${milliseconds(to)}` });
    element.style.left = `${(100 * from) / total}%`;
    element.style.width = `${Math.max(0.4, (100 * (to - from)) / total)}%`;
    return element;
  };
  const row = (send) => {
    const end = send.end ?? exchange.ms;
    const first = send.first ?? send.opened ?? end;
    return h("li", {},
      h("span", { class: "label" }, `${send.number}. ${send.mode}`),
      h("span", { class: "track", "aria-hidden": "true" }, bar("wait", send.start, first, "waiting"), bar(send.ok ? "receive" : "receive bad", first, end, "receiving")),
      h("span", { class: "muted times" }, `at ${milliseconds(send.start)}, first byte after ${milliseconds(first - send.start)}, done after ${milliseconds(end - send.start)}`));
  };
  return section(`Time line, ${milliseconds(total)}`, exchange.sends.length ? h("ol", { class: "timeline" }, exchange.sends.map(row)) : null);
}

function drawSend(exchange, send, last) {
  const key = `${exchange.id} send ${send.number}`;
  const title = `${send.number}. ${send.mode} mode, ${PURPOSES[send.purpose]}: ${send.outcome}`;
  return h("section", { class: "card send" }, fold(key, h("h3", {}, title), last,
    fold(`${key} prompt`, "Prompt", last, drawPrompt(send)),
    send.purpose === "template" ? null : drawReply(key, send),
    fold(`${key} request`, `Request: ${send.request.method} ${send.request.url}, ${bytes(send.request.size)}`, false,
      send.request.curl ? copyButton("Copy as curl", send.request.curl, "curl command") : null, message(send.request)),
    fold(`${key} response`, `Response: ${send.response.status ? `HTTP ${send.response.status}` : "none"}, ${bytes(send.response.size)}`, false,
      send.response.failed ? h("p", { class: "error" }, send.response.failed) : null, message(send.response))));
}

function drawPrompt(send) {
  const { text, messages, tools } = send.prompt;
  const notes = send.notes.length ? h("ul", { class: "reasons" }, send.notes.map((note) => h("li", {}, note))) : null;
  if (text !== undefined) return [h("div", { class: "prompt" }, block("Rendered prompt", text)), notes];
  return [
    h("p", { class: "muted" }, "The server renders these with its own chat template."),
    messages.map((entry) => h("div", { class: "message" },
      h("span", { class: "role" }, entry.role || "?"),
      block("Message", entry.text, entry.others.map((kind) => `\n[${kind}]`)),
      entry.calls.map((call) => block("Call", h("span", { class: "part call", "data-label": "call" }, `${call.name}(${call.arguments})`))))),
    tools.length ? fold(`tools ${send.number}`, `${plural(tools.length, "tool")}: ${tools.map((tool) => tool.name).join(", ")}`, false,
      tools.map((tool) => block("Tool", tool.text))) : null,
    notes,
  ];
}

function drawReply(key, send) {
  const { choices, problem } = send.reply;
  return [
    h("h4", {}, "Raw reply"),
    problem ? h("p", { class: "error" }, problem) : null,
    choices.length ? legend() : problem ? null : h("p", { class: "muted" }, "None."),
    choices.map((choice) => [
      choices.length > 1 ? h("h4", {}, `Choice ${choice.index}`) : null,
      rawText(choice),
      choice.read ? [readReply(choice.read, { text: false }), tries(`${key} tries ${choice.index}`, choice, false)] : null,
    ]),
  ];
}

function answer(exchange) {
  const { replies, response } = exchange;
  return section("What the app got",
    exchange.status ? h("p", {}, `HTTP ${exchange.status}`) : h("p", { class: "muted" }, exchange.state === "running" ? "Nothing that is complete yet." : "No response."),
    replies.map((reply, index) => [replies.length > 1 ? h("h4", {}, `Reply ${index + 1}`) : null, readReply(reply)]),
    response.text ? fold(`${exchange.id} response`, `The response itself, ${plural(response.text.length, "character")}`, !replies.length,
      block("Response", pretty(response.text)), response.left_out ? h("p", { class: "notice" }, "The rest is not kept.") : null) : null);
}

/** Return headers and body. */
function message({ headers, text, left_out: leftOut }) {
  return [
    h("dl", { class: "headers" }, headers.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    text ? block("Body", pretty(text)) : h("p", { class: "muted" }, "No body."),
    leftOut ? h("p", { class: "notice" }, `${bytes(leftOut)} more are not kept.`) : null,
  ];
}
