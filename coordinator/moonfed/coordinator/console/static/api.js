// Requests to the console. An error carries the server's own sentence.

export const session = { operator: "", role: "", calls: [], csrf: "", coordinator: "", release: "", read_only: false };

export class Failure extends Error {
  constructor(status, sentence, document = {}) {
    super(sentence);
    this.status = status;
    this.document = document;
  }
}

export async function get(path, parameters = {}) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value !== false));
  return await request(query.size ? `${path}?${query}` : path, {});
}

export async function post(path, document = {}) {
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": session.csrf };
  return await request(path, { method: "POST", headers, body: JSON.stringify(document) });
}

export function permits(call) {
  return session.calls.includes(call);
}

async function request(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, credentials: "same-origin", cache: "no-store" });
  } catch {
    throw new Failure(0, "the console does not answer; its process may have ended");
  }
  let document;
  try {
    document = await response.json();
  } catch {
    throw new Failure(response.status, "the answer was broken off; try again");
  }
  if (response.ok) return document;
  if (response.status === 401 && path !== "/api/session" && path !== "/api/login") {
    dispatchEvent(new Event("loggedout"));
  }
  throw new Failure(response.status, document.error ?? `status ${response.status}`, document);
}

// Calls a function now and then while the page is visible. Returns a function that ends it.
export function repeat(seconds, work) {
  let timer = null;
  let ended = false;
  const run = async () => {
    clearTimeout(timer);
    if (document.visibilityState === "visible") {
      try { await work(); } catch (error) { if (!ended) dispatchEvent(new CustomEvent("failure", { detail: error })); }
    }
    if (!ended) timer = setTimeout(run, seconds * 1000);
  };
  const wake = () => { if (document.visibilityState === "visible") run(); };
  document.addEventListener("visibilitychange", wake);
  run();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", wake);
  };
}
