// Follows the document of the manager: polls for changes, keeps the items, and knows how old they are.

const TOKEN = "bowline-token";
/** Time between two requests. */
const INTERVAL = 1000;
/** Time between two requests while the page is not visible. */
const HIDDEN = 15000;
const LONGEST_BACKOFF = 10000;
const TIMEOUT = 10000;

/** Moves the token from the URL to the storage of this tab, so that it is neither visible nor in a bookmark. */
export function takeToken() {
  const [path, query = ""] = location.hash.slice(1).split("?");
  const values = new URLSearchParams(path.startsWith("/") ? query : path);
  const token = values.get("token");
  if (token === null) return false;
  sessionStorage.setItem(TOKEN, token);
  values.delete("token");
  const rest = values.toString();
  history.replaceState(null, "", path.startsWith("/") ? `#${path}${rest && `?${rest}`}` : "#/overview");
  return true;
}

function request(path, options = {}) {
  const headers = { "x-bowline-token": sessionStorage.getItem(TOKEN) ?? "", ...options.headers };
  return fetch(path, { ...options, headers, cache: "no-store", redirect: "error", signal: AbortSignal.timeout(TIMEOUT) });
}

/** Performs an action; returns the message of its result. */
export async function act(action, target) {
  let response;
  try {
    const headers = { "content-type": "application/json" };
    response = await request("/actions", { method: "POST", headers, body: JSON.stringify({ action, target }) });
  } catch {
    return { ok: false, message: "The program that serves this page does not respond." };
  }
  const answer = await response.json().catch(() => ({}));
  return { ok: response.ok, message: answer.message ?? answer.error ?? `The action failed with status ${response.status}.` };
}

/** The items of the document by kind and name. */
export class Store {
  constructor() {
    this.clear();
    this.version = 0;
  }

  clear() {
    this.kinds = new Map();
    this.versions = new Map();
    this.levels = new Map();
  }

  all(kind) {
    let items = this.kinds.get(kind);
    if (!items) this.kinds.set(kind, (items = new Map()));
    return items;
  }

  get(kind, name) {
    return this.kinds.get(kind)?.get(name);
  }

  /** Changes whenever an item of the kind does. */
  versionOf(kind) {
    return this.versions.get(kind) ?? 0;
  }

  /** Applies changes, all with the time of the manager. */
  apply(changes, now) {
    if (changes.complete) this.clear();
    const removed = changes.removed ?? [];
    const entries = Object.entries(changes.items ?? {});
    if (!changes.complete && entries.length === 0 && removed.length === 0) return false;
    this.version += 1;
    for (const [key, item] of entries) {
      const [kind, name] = split(key);
      this.all(kind).set(name, item);
      this.versions.set(kind, this.version);
      const level = item?.health?.level;
      if (level && this.levels.get(key)?.level !== level) this.levels.set(key, { level, since: now });
    }
    for (const key of removed) {
      const [kind, name] = split(key);
      this.all(kind).delete(name);
      this.versions.set(kind, this.version);
      this.levels.delete(key);
    }
    return true;
  }

  /** Since when this page has seen the item with its level. */
  levelSince(kind, name) {
    return this.levels.get(`${kind}/${name}`)?.since;
  }
}

/** Splits `KIND/NAME`; names may contain slashes. */
export function split(key) {
  const at = key.indexOf("/");
  return [key.slice(0, at), key.slice(at + 1)];
}

/** Polls the document and reports every response, failure and second to `onUpdate`. */
export class Feed {
  constructor(store, onUpdate) {
    this.store = store;
    this.onUpdate = onUpdate;
    this.position = { epoch: "", revision: 0 };
    this.offset = 0;
    this.failures = 0;
    this.restarts = 0;
    this.session = undefined;
    this.isSessionOld = true;
    this.error = undefined;
    this.receivedAt = undefined;
    this.failedSince = undefined;
    this.nextTry = undefined;
  }

  /** Time of the manager. */
  now() {
    return Date.now() + this.offset;
  }

  start() {
    document.addEventListener("visibilitychange", () => document.hidden || this.retry());
    this.poll();
  }

  /** Tries at once, for example with another token. */
  retry() {
    clearTimeout(this.timer);
    if (!this.busy) this.poll();
  }

  async poll() {
    this.busy = true;
    try {
      if (this.isSessionOld) this.session = await this.read("/session");
      this.isSessionOld = false;
      const query = new URLSearchParams({ epoch: this.position.epoch, since: this.position.revision });
      this.receive(await this.read(`/document?${query}`));
    } catch (error) {
      this.fail(error);
    }
    this.busy = false;
    this.schedule();
    this.onUpdate();
  }

  async read(path) {
    let response;
    try {
      response = await request(path);
    } catch {
      throw new Failure(
        "gone",
        "The program that serves this page does not respond. If it has ended, start it again and open the URL that it prints.",
      );
    }
    const body = await response.json().catch(() => ({}));
    if (response.ok) return body;
    const kind = response.status === 401 ? "token" : "manager";
    throw new Failure(kind, body.error ?? `The program that serves this page responded with status ${response.status}.`);
  }

  receive(changes) {
    const time = Date.parse(changes.time);
    if (Number.isFinite(time)) this.offset = time - Date.now();
    if (this.position.epoch && this.position.epoch !== changes.epoch) this.restarts += 1;
    this.position = { epoch: changes.epoch, revision: changes.revision };
    this.store.apply(changes, this.now());
    this.receivedAt = Date.now();
    this.failures = 0;
    this.error = undefined;
    this.failedSince = undefined;
  }

  fail(error) {
    this.failures += 1;
    this.error = error instanceof Failure ? error : new Failure("page", `This page failed: ${error.message}`);
    this.failedSince ??= Date.now();
    // Another process may serve the page after an outage, with other actions.
    this.isSessionOld = true;
  }

  schedule() {
    const backoff = Math.min(INTERVAL * 2 ** Math.max(0, this.failures - 1), LONGEST_BACKOFF);
    const wait = document.hidden ? HIDDEN : backoff;
    this.nextTry = Date.now() + wait;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.poll(), wait);
  }
}

/** Why the document cannot be read: the program is `gone`, rejects the `token`, cannot reach the `manager`, or the `page` has a bug. */
class Failure extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}
