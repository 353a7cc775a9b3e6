// Requests to the proxy. Its key is kept for this tab, and sent in a header: a browser cannot send it when it navigates.

const KEY = "promptools.key";
const BASE = new URL("inspect/api/", document.baseURI);
const RETRY_MS = 500;

export class NeedsKeyError extends Error {}

export const setKey = (key) => sessionStorage.setItem(KEY, key);
export const forgetKey = () => sessionStorage.removeItem(KEY);
export const hasKey = () => sessionStorage.getItem(KEY) !== null;

async function send(path, options = {}) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(new URL(path, BASE), { ...options, headers, cache: "no-store", credentials: "omit" });
  if (response.status === 401) throw new NeedsKeyError();
  return response;
}

/** Return the JSON of a response; an error of the proxy is raised with its text. */
export async function request(path, options) {
  const response = await send(path, options);
  const body = await response.json();
  if (!response.ok) throw new Error(typeof body.error === "string" ? body.error : body.error?.message ?? `HTTP ${response.status}`);
  return body;
}

export const parse = (body, signal) => request("parse", {
  method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" }, signal,
});

/** Call `onEvent` with each event, for ever; `after` returns the store and its last change that are known. */
export async function follow(after, onEvent, onState) {
  for (;;) {
    try {
      const response = await send(`events?${new URLSearchParams(after())}`);
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      onState("live");
      await read(response, onEvent);
    } catch (error) {
      if (error instanceof NeedsKeyError) throw error;
      onState("offline");
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

async function read(response, onEvent) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) if (event.startsWith("data: ")) onEvent(JSON.parse(event.slice(6)));
  }
}
