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

  delete(path, query = {}, signal = undefined) {
    return this.#json("DELETE", path, { query, signal });
  }

  /** Return the Response of a GET, for a body that is read as it comes. */
  stream(path, query, signal) {
    return this.#fetch("GET", path, { query, signal });
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
        if (request.status < 300) resolve(parsed(request.responseText));
        else
          reject(
            this.#refusal(request.status, request.responseText, request.getResponseHeader("Retry-After")),
          );
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
    let response;
    try {
      response = await fetch(this.#url(path, query), {
        method,
        headers,
        signal,
        body: body === undefined ? undefined : JSON.stringify(body),
        cache: "no-store",
        credentials: "same-origin",
        redirect: "error",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw unanswered();
    }
    if (!response.ok)
      throw this.#refusal(response.status, await response.text(), response.headers.get("Retry-After"));
    return response;
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

  #refusal(status, text, retryAfter) {
    const told = parsed(text)?.error;
    const error = new ApiError(
      status,
      { message: told?.message ?? `The proxy answered ${status}.`, param: told?.param, code: told?.code },
      Number.parseInt(retryAfter ?? "0", 10) || 0,
    );
    if (status === 401) this.#onUnauthorized(error);
    return error;
  }
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
