// Parts that all views share: health, links, explanations, copy buttons, long texts.

import { h } from "./dom.js";
import { EXPLANATIONS, QUEUE_OWNERS } from "./explain.js";
import { ago, count, cut, millis, table, until, visible } from "./format.js";

/** Severities from the worst to the best, each with its name. */
export const LEVELS = ["error", "warning", "unknown", "progressing", "ok"];
export const LEVEL_NAMES = table({ error: "Error", warning: "Warning", unknown: "Unknown", progressing: "In progress", ok: "Ok" });

/** Kinds that have a list: path of the list, title, and explanation. */
export const KINDS = table({
  node: { view: "nodes", one: "Node", many: "Nodes", explain: "nodes" },
  service: { view: "services", one: "Service", many: "Services", explain: "services" },
  loadBalancer: { view: "load-balancers", one: "Load balancer", many: "Load balancers", explain: "loadBalancers" },
  route: { view: "routes", one: "Route", many: "Routes", explain: "routes" },
  machine: { view: "machines", one: "Machine", many: "Machines", explain: "machines" },
  cloud: { view: "clouds", one: "Cloud", many: "Clouds", explain: "clouds" },
  controller: { view: "controllers", one: "Controller", many: "Controllers", explain: "controllers" },
  queue: { view: "controllers", one: "Queue", many: "Queues", explain: "queues" },
  watch: { view: "controllers", one: "Watch", many: "Watches", explain: "watches" },
  manager: { view: "now", one: "Manager", many: "Managers", explain: "leader" },
  event: { view: "events", one: "Event", many: "Events", explain: "events" },
});

export const levelOf = (item) => (LEVEL_NAMES[item?.health?.level] ? item.health.level : "unknown");
export const rankOf = (level) => LEVELS.indexOf(level);

const SHAPES = {
  ok: [
    ["circle", { cx: 8, cy: 8, r: 7 }],
    ["path", { d: "M4.8 8.2 7 10.5l4.2-4.8", class: "mark" }],
  ],
  progressing: [
    ["circle", { cx: 8, cy: 8, r: 6.3, class: "ring" }],
    ["path", { d: "M4.7 8h.01M8 8h.01M11.3 8h.01", class: "dots" }],
  ],
  unknown: [
    ["rect", { x: 1.5, y: 1.5, width: 13, height: 13, rx: 2 }],
    ["path", { d: "M6 6.3C6 4 10 4 10 6.4 10 8 8 7.8 8 9.4M8 11.8h.01", class: "mark" }],
  ],
  warning: [
    ["path", { d: "M8 1.2 15.4 14.6H.6Z" }],
    ["path", { d: "M8 6v4M8 12.4h.01", class: "mark" }],
  ],
  error: [
    ["path", { d: "M5 1h6l4 4v6l-4 4H5l-4-4V5Z" }],
    ["path", { d: "m5.4 5.4 5.2 5.2m0-5.2-5.2 5.2", class: "mark" }],
  ],
};

/** Icon of a level: colour and shape. The name of the level is text for screen readers, unless it stands beside it. */
export function icon(level, isNamed = false) {
  const shape = SHAPES[level].map(([tag, props]) => h(tag, props));
  const svg = h("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true", focusable: "false" }, shape);
  return h("span", { class: `level level-${level}` }, svg, isNamed ? null : h("span", { class: "sr" }, LEVEL_NAMES[level]));
}

/** Icon and reason of a health. */
export function health(item) {
  const level = levelOf(item);
  const reason = item?.health?.reason || LEVEL_NAMES[level];
  const hidden = reason.toLowerCase() === LEVEL_NAMES[level].toLowerCase();
  return h("span", { class: "health" }, icon(level, hidden), h("span", { class: "reason cut" }, user(reason, 60)));
}

/** A text from users or clouds: isolated from the direction of the text around it. */
export const user = (text, length = 200) => h("bdi", {}, cut(text, length));
export const code = (text, length = 200) => h("bdi", { class: "code" }, cut(text, length));

/** A text of any length; the part after the first 400 characters on demand. */
export function long(text) {
  const shown = visible(text);
  if (shown.length <= 500) return h("bdi", { class: "long" }, shown);
  return h(
    "details",
    { class: "more" },
    h("summary", {}, h("bdi", { class: "long" }, `${shown.slice(0, 400)}… `), h("span", { class: "link" }, "Show all")),
    h("bdi", { class: "long" }, shown.slice(400)),
  );
}

/** Dot-separated, skips what is missing. */
export const joined = (...parts) => parts.filter(Boolean).flatMap((part, index) => (index ? [" · ", part] : [part]));

/** URL of the details of an item, within the current view. */
export function href(app, kind, name) {
  return app.route.with({ item: `${kind}/${name}` });
}

/** Link to the details of an item. */
export function link(app, kind, name, label = name, props = {}) {
  const exists = kind === "machine" || app.store.get(kind, name) !== undefined;
  if (!exists) return user(label);
  return h("a", { href: href(app, kind, name), title: cut(name, 300), ...props }, user(label));
}

/** Button that explains what something is. */
export function explain(app, name) {
  const entry = EXPLANATIONS[name];
  if (!entry) return null;
  const open = (event) => app.explanation.open(name, event.currentTarget);
  return h(
    "button",
    { type: "button", class: "what", "aria-label": `What is this: ${entry.title}`, "aria-haspopup": "dialog", onclick: open },
    "?",
  );
}

/** Heading with its explanation. */
export function heading(app, level, text, name, ...rest) {
  return h("div", { class: "heading" }, h(`h${level}`, {}, text), name ? explain(app, name) : null, ...rest);
}

/** A command with a button that copies it. */
export function command(app, text) {
  const copy = async () => {
    const done = await navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
    app.say(done ? "Copied." : "The browser does not permit copying; select the command instead.", done ? "ok" : "error");
  };
  return h(
    "div",
    { class: "command" },
    h("code", {}, h("bdi", {}, visible(text))),
    h("button", { type: "button", class: "small", onclick: copy, "aria-label": `Copy the command ${cut(text, 80)}` }, "Copy"),
  );
}

/** Names as Kubernetes accepts them. Others are not put into a command. */
const SAFE = /^[a-z0-9]([a-z0-9.:-]*[a-z0-9])?$/i;

/** The command that shows more about an object of Kubernetes. */
export function describe(kind, name) {
  if (kind === "node" && SAFE.test(name)) return `kubectl describe node ${name}`;
  const [namespace, service, rest] = name.split("/");
  if (kind !== "service" || rest !== undefined || !SAFE.test(namespace) || !SAFE.test(service ?? "")) return undefined;
  return `kubectl --namespace ${namespace} describe service ${service}`;
}

/** Rows of a definition list; rows without a value are left out. */
export function facts(rows) {
  const shown = rows.filter(
    ([, value]) => value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && value.length === 0),
  );
  return h(
    "dl",
    { class: "facts" },
    shown.map(([name, value]) => h("div", { key: name }, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** A list of texts, one per line. */
export const lines = (texts) =>
  texts?.length
    ? h(
        "ul",
        { class: "plain" },
        texts.map((text) => h("li", {}, code(text, 400))),
      )
    : undefined;

/** Age of a timestamp, with the time as a tooltip. */
export function age(app, timestamp) {
  if (!timestamp) return undefined;
  return h("time", { datetime: timestamp, title: timestamp }, ago(timestamp, app.now()));
}

const WORK_STATES = table({ idle: "Idle", waiting: "Waiting", inWork: "In work", delayed: "Delayed" });

export const workState = (work) => WORK_STATES[work?.state] ?? "Idle";

/** When the next sync is, if one is scheduled; what happens now otherwise. */
export function nextTry(app, work) {
  if (!work) return undefined;
  if (work.state === "inWork") return work.since ? `in work for ${ago(work.since, app.now()).replace(" ago", "")}` : "in work";
  if (work.state === "waiting") return "waiting for a worker";
  if (!work.next) return undefined;
  return h(
    "time",
    { datetime: work.next, class: "countdown" },
    `${work.failures || work.error ? "next try" : "next check"} ${until(work.next, app.now())}`,
  );
}

/** The work of an item: Services have one entry, Nodes one per controller; the one with a failure or the earliest next try. */
export function mainWork(item) {
  if (!item?.work) return undefined;
  if (typeof item.work.state === "string") return item.work;
  const all = Object.values(item.work);
  const rank = (work) => (work.error || work.failures ? 0 : work.state === "inWork" ? 1 : work.state === "waiting" ? 2 : work.next ? 3 : 4);
  return all.sort((a, b) => rank(a) - rank(b) || millis(a.next ?? 0) - millis(b.next ?? 0))[0];
}

/** Number of items per level. */
export function levels(items) {
  const counts = Object.fromEntries(LEVELS.map((level) => [level, 0]));
  for (const item of items) counts[levelOf(item)] += 1;
  return counts;
}

/** Counts per level, each with its icon. */
export function levelCounts(counts) {
  return LEVELS.filter((level) => counts[level]).map((level) =>
    h("span", { key: level, class: "level-count" }, icon(level), " ", count(counts[level])),
  );
}

/** An empty state: says so, and what would be here. */
export const empty = (text) => h("p", { class: "empty" }, text);

/** Queues of a controller. A queue for one cloud has the name of the cloud after its own. */
export function queuesOf(app, controller) {
  const isOwn = (queue) => queue === controller || QUEUE_OWNERS[queue.split(" ")[0]] === controller;
  return [...app.store.all("queue")].filter(([queue]) => isOwn(queue));
}

/** Number of targets of a Service; the document has the first ones. */
export const targetCount = (service) => service.targetCount ?? service.targets?.length ?? 0;
