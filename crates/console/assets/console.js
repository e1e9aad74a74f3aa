// The page: the frame around the views, and what connects them with the document.

import { History } from "./charts.js";
import { details } from "./details.js";
import { h, render } from "./dom.js";
import { EXPLANATIONS, INTRODUCTION } from "./explain.js";
import { Feed, Store, act, takeToken } from "./feed.js";
import { clock, count, cut, duration, visible } from "./format.js";
import { controllers, lists } from "./lists.js";
import { now } from "./now.js";
import { overview } from "./overview.js";
import { LEVELS, explain, icon, levels, user } from "./parts.js";
import { playground } from "./playground.js";
import { Route, to } from "./route.js";

const INTRODUCED = "bowline-introduced";
/** Age of the document from which on the page says that it is old. */
const OLD = 5000;
/** Time that a message stays. */
const MESSAGE = 8000;

const part = (id) => document.getElementById(id);

class App {
  constructor() {
    this.store = new Store();
    this.history = new History();
    this.feed = new Feed(this.store, () => this.update());
    this.explanation = new Explanation(part("explanation"));
    this.memos = new Map();
    this.messages = [];
    this.busy = false;
    this.isMenuOpen = false;
    this.lists = lists(this);
    this.navigate();
  }

  start() {
    addEventListener("hashchange", () => {
      // Another URL of the program, pasted into the same tab.
      if (takeToken()) this.feed.retry();
      this.navigate();
    });
    addEventListener("scroll", () => this.requestDraw(), { passive: true });
    addEventListener("resize", () => this.requestDraw());
    addEventListener("keydown", (event) => this.onKey(event));
    part("skip").onclick = () => part("main").focus();
    // Ages and countdowns go on while there is no connection.
    setInterval(() => document.hidden || this.draw(), 1000);
    this.feed.start();
    this.draw();
  }

  now() {
    return this.feed.now();
  }

  /** Keeps a value until `version` changes. */
  memo(name, version, compute) {
    const known = this.memos.get(name);
    if (known && known.version === version) return known.value;
    const value = compute();
    this.memos.set(name, { version, value });
    return value;
  }

  update() {
    if (!this.feed.error) this.history.record(this.store, this.now());
    if (this.restarts !== this.feed.restarts) {
      if (this.restarts !== undefined) this.history.clear();
      this.restarts = this.feed.restarts;
    }
    this.draw();
  }

  // ---- navigation

  navigate() {
    const before = this.route;
    this.route = new Route(location.hash);
    this.isMenuOpen = false;
    this.explanation.close();
    this.draw();
    if (!before) return;
    if (before.view !== this.route.view) {
      scrollTo(0, 0);
      part("main").querySelector("h1")?.focus();
    } else if (this.route.get("item") && before.get("item") !== this.route.get("item")) {
      if (!before.get("item")) this.opener = document.activeElement?.closest?.("[data-index], [data-id], a")?.getAttribute("href");
      part("details").scrollTop = 0;
      part("details-title")?.focus();
    }
  }

  /** Opens a URL of this page. Filters replace the current one, so that "back" leaves the list. */
  go(hash, isReplaced = false) {
    if (!isReplaced) {
      location.hash = hash;
      return;
    }
    history.replaceState(null, "", hash);
    this.route = new Route(location.hash);
    this.draw();
  }

  closeDetails() {
    const opener = this.opener;
    this.opener = undefined;
    this.go(this.route.with({ item: "" }));
    // After the view was drawn for the new URL.
    setTimeout(() => {
      const links = [...part("main").querySelectorAll("a[href]")];
      (links.find((link) => link.getAttribute("href") === opener) ?? part("main").querySelector("h1"))?.focus();
    });
  }

  onKey(event) {
    const isTyping = event.target.closest?.("input, select, textarea");
    if (event.key === "Escape" && !part("confirm").open && !this.explanation.isOpen()) {
      if (this.route.get("item")) this.closeDetails();
    } else if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const search = part("main").querySelector("input[type=search]");
      if (search) event.preventDefault();
      search?.focus();
    }
  }

  // ---- actions

  canAct() {
    return Boolean(this.feed.session?.actions);
  }

  async act(action, target) {
    this.busy = true;
    this.draw();
    const { ok, message } = await act(action, target);
    this.busy = false;
    this.say(message, ok ? "ok" : "error");
    this.feed.retry();
  }

  /** Asks before something is deleted. */
  confirm(title, text, label, action) {
    const dialog = part("confirm");
    const choose = (isConfirmed) => {
      dialog.close();
      if (isConfirmed) action();
    };
    render(
      dialog,
      h("h2", { id: "confirm-title" }, h("bdi", {}, title)),
      h("p", {}, text),
      h(
        "div",
        { class: "buttons" },
        h("button", { type: "button", autofocus: true, onclick: () => choose(false) }, "Cancel"),
        h("button", { type: "button", class: "danger", onclick: () => choose(true) }, label),
      ),
    );
    dialog.showModal();
  }

  say(text, level) {
    const message = { text, level, key: String(Math.random()) };
    this.messages = [...this.messages.slice(-2), message];
    this.draw();
    setTimeout(() => this.dismiss(message), level === "error" ? 3 * MESSAGE : MESSAGE);
  }

  dismiss(message) {
    this.messages = this.messages.filter((each) => each !== message);
    this.draw();
  }

  // ---- drawing

  requestDraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = undefined;
      this.draw();
    });
  }

  draw() {
    render(part("top"), this.top());
    render(part("nav"), this.nav());
    render(part("banner"), this.banner());
    render(part("main"), this.view());
    const open = details(this);
    render(part("details"), open);
    part("details").hidden = open.length === 0;
    document.body.classList.toggle("has-details", open.length > 0);
    render(
      part("messages"),
      this.messages.map((message) =>
        h(
          "div",
          { key: message.key, class: `message message-${message.level}` },
          icon(message.level),
          h("span", {}, user(message.text, 600)),
          h("button", { type: "button", class: "close", "aria-label": "Dismiss", onclick: () => this.dismiss(message) }, "×"),
        ),
      ),
    );
  }

  view() {
    const { view } = this.route;
    const special = { overview, now, controllers, playground };
    if (!this.feed.receivedAt)
      return [
        h("h1", { class: "sr", tabindex: "-1" }, "Bowline"),
        h("p", { class: "empty" }, this.feed.error ? "There is nothing to show yet." : "Waiting for the document of the manager…"),
      ];
    if (Object.hasOwn(special, view)) return special[view](this);
    if (Object.hasOwn(this.lists, view)) return h("div", { key: view, class: "list" }, this.lists[view].render());
    return [h("h1", { tabindex: "-1" }, "There is no such view"), h("p", {}, h("a", { href: to("overview") }, "To the overview"))];
  }

  top() {
    const { session } = this.feed;
    const self = this.store.get("manager", "self");
    const toggle = () => {
      this.isMenuOpen = !this.isMenuOpen;
      this.draw();
    };
    return [
      h(
        "button",
        { type: "button", class: "menu", "aria-expanded": String(this.isMenuOpen), "aria-controls": "nav", onclick: toggle },
        h("span", { "aria-hidden": "true" }, "☰"),
        h("span", { class: "sr" }, "Menu"),
      ),
      h(
        "a",
        { class: "brand", href: to("overview") },
        h("img", { src: "/icon.svg", alt: "", width: 24, height: 24 }),
        h("span", {}, "Bowline"),
      ),
      session &&
        h(
          "span",
          { class: "where", title: cut(session.title, 300) },
          h("span", { class: "source" }, session.source === "playground" ? "Playground" : "Cluster"),
          h("span", { class: "where-title" }, user(session.title, 160)),
        ),
      h("span", { class: "grow" }),
      self &&
        h(
          "a",
          { class: "role", href: to("now") },
          self.leader ? "Leader" : "Standby",
          self.dryRun ? " · dry run" : "",
          self.version && h("span", { class: "version" }, " ", user(self.version, 30)),
        ),
      this.liveness(),
    ];
  }

  liveness() {
    const { receivedAt, error } = this.feed;
    const isOld = error || !receivedAt || Date.now() - receivedAt > OLD + (document.hidden ? 15000 : 0);
    return h(
      "span",
      { class: `live ${isOld ? "live-old" : "live-now"}` },
      h("i", { "aria-hidden": "true" }),
      isOld ? (receivedAt ? `${duration(Date.now() - receivedAt)} old` : "no data") : "Live",
    );
  }

  nav() {
    const counts = (kind) => this.memo(`levels/${kind}`, this.store.versionOf(kind), () => levels(this.store.all(kind).values()));
    const entry = (view, title, kind) => {
      const items = kind && this.store.all(kind);
      const worst = kind && LEVELS.find((level) => counts(kind)[level] && level !== "ok" && level !== "progressing");
      return h(
        "li",
        { key: view },
        h(
          "a",
          { href: to(view), "aria-current": this.route.view === view ? "page" : undefined },
          h("span", { class: "grow" }, title),
          worst && icon(worst),
          items ? h("span", { class: "number" }, count(items.size)) : null,
        ),
      );
    };
    const group = (title, ...entries) => h("div", { key: title, class: "nav-group" }, h("h2", {}, title), h("ul", {}, entries));
    const hasPlayground = this.store.all("step").size || this.store.all("fault").size || this.canAct();
    const calls = () => [...this.store.all("cloud").values()].length;
    return h(
      "div",
      { class: this.isMenuOpen ? "nav-groups is-open" : "nav-groups" },
      group(
        "Live",
        entry("overview", "Overview"),
        entry("now", "What happens now"),
        hasPlayground ? entry("playground", "Playground") : null,
      ),
      group("Cluster", entry("nodes", "Nodes", "node"), entry("services", "Services", "service"), entry("events", "Events")),
      group(
        "Cloud",
        entry("clouds", "Clouds", "cloud"),
        this.store.all("machine").size ? entry("machines", "Machines", "machine") : null,
        entry("load-balancers", "Load balancers", "loadBalancer"),
        entry("routes", "Routes", "route"),
        calls() ? entry("calls", "Calls") : null,
      ),
      group("Manager", entry("controllers", "Controllers", "controller")),
      h("p", { class: "nav-foot" }, "What the shapes mean ", explain(this, "health")),
    );
  }

  /** Says that the manager is away, how old the data is, and when the page tries again. */
  banner() {
    const { error, receivedAt, failedSince, nextTry } = this.feed;
    this.announce(error ? `No connection. ${error.message}` : this.wasAway ? "Connected again." : "");
    this.wasAway ||= Boolean(error);
    if (!error) return null;
    const title =
      error.kind === "token"
        ? "This page has no valid token."
        : error.kind === "manager"
          ? "The manager cannot be read."
          : "No connection.";
    return h(
      "div",
      { class: "banner" },
      icon("error"),
      h(
        "div",
        { class: "banner-text" },
        h("strong", {}, title),
        " ",
        user(error.message, 600),
        h(
          "div",
          {},
          receivedAt ? `You see the state of ${clock(receivedAt)}, which is ${duration(Date.now() - receivedAt)} old. ` : "",
          `Trying for ${duration(Date.now() - failedSince)}, next try in ${duration(Math.max(0, nextTry - Date.now()))}.`,
        ),
      ),
      h("button", { type: "button", onclick: () => this.feed.retry() }, "Try now"),
    );
  }

  /** Announces a change of the connection once to screen readers. */
  announce(text) {
    if (this.announced === text) return;
    this.announced = text;
    render(part("status"), visible(text));
  }

  introduction() {
    if (read(INTRODUCED)) return null;
    const dismiss = () => {
      write(INTRODUCED, "yes");
      this.draw();
    };
    return h(
      "section",
      { class: "panel introduction", "aria-labelledby": "introduction" },
      h(
        "div",
        {},
        h("h2", { id: "introduction" }, "New here?"),
        INTRODUCTION.map((text, index) => h("p", { key: index }, text)),
      ),
      h("button", { type: "button", onclick: dismiss }, "Got it"),
    );
  }
}

/** Storage of the browser, which may be turned off. */
function read(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function write(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The introduction is shown again next time.
  }
}

/** The explanation that is open, as a popover beside its button. */
class Explanation {
  constructor(element) {
    this.element = element;
  }

  isOpen() {
    return this.element.matches(":popover-open");
  }

  open(name, button) {
    const { title, text, by } = EXPLANATIONS[name];
    render(
      this.element,
      h("h2", { id: "explanation-title" }, title),
      h("p", {}, text),
      by && h("p", { class: "by" }, "Made by: ", by, "."),
      h("button", { type: "button", class: "small", onclick: () => this.close() }, "Close"),
    );
    if (!this.isOpen()) this.element.showPopover();
    const box = button.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const top = box.bottom + 6 + height > innerHeight ? Math.max(8, box.top - 6 - height) : box.bottom + 6;
    this.element.style.left = `${Math.max(8, Math.min(box.left - 12, innerWidth - width - 8))}px`;
    this.element.style.top = `${top}px`;
    this.button = button;
    this.element.focus();
  }

  close() {
    if (!this.isOpen()) return;
    this.element.hidePopover();
    this.button?.focus();
  }
}

takeToken();
new App().start();
