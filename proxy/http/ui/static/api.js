// The memory API, and nothing else of the network.

/** What the proxy refused, or 0 as `status` where it did not answer. */
export class ApiError extends Error {
  constructor(status, { message, param = null, code = null }, retryAfter = 0) {
    super(message);
    this.status = status;
    this.param = param;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

export class Api {
  #base;
  #credential;
  #onUnauthorized;

  /** `base`: where /v1 is. `credential`: returns what to sign in with, or null. */
  constructor(base, credential, onUnauthorized) {
    this.#base = base;
    this.#credential = credential;
    this.#onUnauthorized = onUnauthorized;
  }

  get(path, query = {}, signal = undefined) {
    return this.#json("GET", path, { query, signal });
  }

  post(path, { query = {}, body = undefined, signal = undefined } = {}) {
    return this.#json("POST", path, { query, body, signal });
  }

  patch(path, { query = {}, body }) {
    return this.#json("PATCH", path, { query, body });
  }

  put(path, { query = {}, body }) {
    return this.#json("PUT", path, { query, body });
  }

  delete(path, query = {}, signal = undefined) {
    return this.#json("DELETE", path, { query, signal });
  }

  /** Return the Response of a GET, for a body that is read as it comes. */
  stream(path, query, signal) {
    return this.#fetch("GET", path, { query, signal });
  }

  /**
   * Ask the model, streamed; resolves to {headers, pieces()}. A 401 here may be the upstream's, so it does not sign the
   * user out. `key`: the upstream's, where the page has no credential of its own.
   */
  async chat(body, { key, signal }) {
    const headers = { "Content-Type": "application/json", ...this.#upstream(key) };
    const response = await this.#send("v1/chat/completions", {}, { method: "POST", headers, signal, body });
    if (!response.ok) throw refusal(response.status, await response.text(), response.headers);
    return { headers: response.headers, pieces: () => pieces(response) };
  }

  /** Return the names of the upstream's models; none if it does not list them. */
  async models(key, signal) {
    try {
      const response = await this.#send("v1/models", {}, { method: "GET", headers: this.#upstream(key), signal });
      const { data } = await response.json();
      return data.map((one) => String(one.id));
    } catch {
      return [];
    }
  }

  #upstream(key) {
    const headers = Object.fromEntries(this.#headers());
    return key && !headers.Authorization ? { Authorization: `Bearer ${key}` } : headers;
  }

  /** Send a file's bytes; `progress` gets the share that is sent, 0 to 1. fetch tells nothing of uploads. */
  upload(path, query, file, progress) {
    return new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open("POST", this.#url(path, query));
      request.setRequestHeader("Content-Type", "application/x-ndjson");
      for (const [name, value] of this.#headers()) request.setRequestHeader(name, value);
      request.upload.addEventListener(
        "progress",
        (event) => event.total && progress(event.loaded / event.total),
      );
      request.addEventListener("load", () => {
        if (request.status < 300) return resolve(parsed(request.responseText));
        const headers = { get: (name) => request.getResponseHeader(name) };
        return reject(this.#refused(request.status, request.responseText, headers));
      });
      request.addEventListener("error", () => reject(unanswered()));
      request.send(file);
    });
  }

  async #json(method, path, options) {
    const response = await this.#fetch(method, path, options);
    try {
      return await response.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(response.status, {
        message: "The answer is not the memory API's. Is the proxy behind this address?",
      });
    }
  }

  async #fetch(method, path, { query, body, signal }) {
    const headers = new Headers(this.#headers());
    if (body !== undefined) headers.set("Content-Type", "application/json");
    const response = await this.#send(path, query, { method, headers, signal, body });
    if (!response.ok) throw this.#refused(response.status, await response.text(), response.headers);
    return response;
  }

  async #send(path, query, { body, ...options }) {
    try {
      return await fetch(this.#url(path, query), {
        ...options,
        body: body === undefined ? undefined : JSON.stringify(body),
        cache: "no-store",
        credentials: "same-origin",
        redirect: "error",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw unanswered();
    }
  }

  #headers() {
    const credential = this.#credential();
    return credential ? [["Authorization", `Bearer ${credential}`]] : [];
  }

  #url(path, query) {
    const url = new URL(path, this.#base);
    for (const [name, value] of Object.entries(query)) {
      if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
    }
    return url;
  }

  #refused(status, text, headers) {
    const error = refusal(status, text, headers);
    if (status === 401) this.#onUnauthorized(error);
    return error;
  }
}

function refusal(status, text, headers) {
  const refused = parsed(text)?.error;
  const message = refused?.message ?? `The proxy answered ${status}.`;
  const wait = Number.parseInt(headers.get("Retry-After") ?? "0", 10) || 0;
  return new ApiError(status, { message, param: refused?.param, code: refused?.code }, wait);
}

/** Yield the text of a chat completion as it comes, streamed or whole. */
async function* pieces(response) {
  if (!response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    yield (await response.json()).choices?.[0]?.message?.content ?? "";
    return;
  }
  let rest = "";
  for await (const chunk of chunks(response.body.pipeThrough(new TextDecoderStream()))) {
    const lines = (rest + chunk).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) {
      const event = line.startsWith("data:") ? parsed(line.slice(5)) : null;
      if (event?.error) throw new ApiError(502, { message: String(event.error.message ?? "The answer broke off.") });
      yield event?.choices?.[0]?.delta?.content ?? "";
    }
  }
}

async function* chunks(stream) {
  const reader = stream.getReader(); // Safari's streams cannot be iterated
  for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
}

function unanswered() {
  return new ApiError(0, { message: "The proxy does not answer." });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** Return an id as one segment of a path. */
export function segment(id) {
  return encodeURIComponent(id);
}
