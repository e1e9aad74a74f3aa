// The picture of the cluster: clouds, machines, Nodes, load balancers and Services as columns, with lines between what belongs together.

import { attention } from "./attention.js";
import { chart, intervals } from "./charts.js";
import { h } from "./dom.js";
import { bytes, count, cut, plural, short, table } from "./format.js";
import { KINDS, LEVELS, LEVEL_NAMES, code, explain, heading, href, icon, levelCounts, levelOf, levels, rankOf, user } from "./parts.js";
import { tourStrip } from "./playground.js";
import { to } from "./route.js";

/** Items that a column shows one by one. With more, it shows one entry per level, and the worst items. */
const MOST = 12;
/** The worst items that a column with many shows. */
const WORST = 4;
/** Targets of one load balancer, and of all, that lines are drawn for; a line to an entry of many Nodes needs one target only. */
const TARGETS = 100;
const ALL_TARGETS = 20000;
const MACHINE_LEVELS = table({ running: "ok", stopped: "warning", gone: "error" });

export function overview(app) {
  return [
    h("h1", { class: "sr", tabindex: "-1" }, "Overview"),
    app.introduction(),
    tourStrip(app),
    attention(app),
    summary(app),
    picture(app),
    activity(app),
  ];
}

/** Counts of the most important kinds, as links to their lists. */
function summary(app) {
  const kinds = ["node", "service", "loadBalancer", "route", "cloud"].filter(
    (kind) => app.store.all(kind).size || ["node", "service"].includes(kind),
  );
  return h(
    "ul",
    { class: "tiles", "aria-label": "Counts" },
    kinds.map((kind) => {
      const items = app.store.all(kind);
      const counts = app.memo(`levels/${kind}`, app.store.versionOf(kind), () => levels(items.values()));
      return h(
        "li",
        { key: kind },
        h(
          "a",
          { class: "tile", href: to(KINDS[kind].view) },
          h("span", { class: "tile-number" }, count(items.size)),
          h("span", { class: "tile-name" }, items.size === 1 ? KINDS[kind].one : KINDS[kind].many),
          h("span", { class: "tile-levels" }, levelCounts(counts)),
        ),
      );
    }),
  );
}

function picture(app) {
  const model = app.memo("picture", app.store.version, () => new Model(app.store));
  const isHidden = model.columns.every((column) => column.size === 0);
  return h(
    "section",
    { class: "panel picture-panel", "aria-labelledby": "picture" },
    h("div", { class: "heading" }, h("h2", { id: "picture" }, "The cluster"), explain(app, "overview")),
    isHidden
      ? h("p", { class: "empty" }, "The document has no Nodes and Services yet.")
      : h(
          "div",
          {
            class: "picture",
            ref: (element) => connect(element, model),
            onpointerover: highlight,
            onpointerleave: clear,
            onfocusin: highlight,
            onfocusout: clear,
          },
          h("svg", { class: "edges", "aria-hidden": "true", focusable: "false" }),
          model.columns.map((column) => columnOf(app, column)),
        ),
  );
}

function columnOf(app, column) {
  return h(
    "div",
    { key: column.kind, class: "column", role: "group", "aria-label": KINDS[column.kind].many },
    h(
      "div",
      { class: "heading" },
      h("h3", {}, KINDS[column.kind].many),
      h("span", { class: "muted" }, count(column.size)),
      explain(app, KINDS[column.kind].explain),
    ),
    column.size === 0 ? h("p", { class: "empty" }, column.none) : null,
    h(
      "ul",
      { class: "cards" },
      column.cards.map((card) => h("li", { key: card.id }, cardOf(app, column, card))),
    ),
  );
}

function cardOf(app, column, card) {
  if (card.count !== undefined) {
    return h(
      "a",
      { class: `card many card-${card.level}`, "data-id": card.id, href: to(KINDS[listOf(app, column.kind)].view, { level: card.level }) },
      icon(card.level, true),
      h("span", { class: "card-name" }, `${count(card.count)} ${LEVEL_NAMES[card.level].toLowerCase()}`),
    );
  }
  return h(
    "a",
    { class: `card card-${card.level}`, "data-id": card.id, href: href(app, card.open[0], card.open[1]), title: cut(card.name, 300) },
    icon(card.level),
    h("span", { class: "card-name" }, user(card.label ?? card.name, 120)),
    card.lines.map((line, index) => h("span", { key: index, class: "card-line" }, line)),
  );
}

/** The kind whose list has the items of a column: machines and load balancers may be known through their Nodes and Services only. */
function listOf(app, kind) {
  const through = { machine: "node", loadBalancer: "service" }[kind];
  return through && !app.store.all(kind).size ? through : kind;
}

/** Columns, cards and edges of the picture. */
class Model {
  constructor(store) {
    this.store = store;
    this.places = new Map();
    this.edges = new Map();
    this.columns = [
      this.column("cloud", store.all("cloud"), cloudLines, "No cloud is configured."),
      this.column("machine", machines(store), machineLines, "No machine is known yet."),
      this.column("node", store.all("node"), (node) => nodeLines(node, this.routes), "No kubelet has registered a Node yet."),
      this.column("loadBalancer", balancers(store), balancerLines, "No Service has a load balancer yet."),
      this.column("service", store.all("service"), serviceLines, "There is no Service of type LoadBalancer yet."),
    ];
    this.connect();
  }

  /** Routes by Node. */
  get routes() {
    this.byNode ??= new Map([...this.store.all("route").values()].map((route) => [route.node, route]));
    return this.byNode;
  }

  column(kind, items, describeItem, none) {
    const all = [...items].sort(([a, first], [b, second]) => rankOf(levelOf(first)) - rankOf(levelOf(second)) || (a < b ? -1 : 1));
    const isLarge = all.length > MOST;
    const single = isLarge
      ? all.filter(([, item]) => ["error", "warning"].includes(levelOf(item))).slice(0, WORST)
      : all.sort(([a, first], [b, second]) => ((first.service ?? a) < (second.service ?? b) ? -1 : 1)); // Lines to Services do not cross.
    const cards = single.map(([name, item]) => this.card(kind, name, item, describeItem));
    if (isLarge) {
      const counts = new Map();
      for (const [name, item] of all) {
        const place = `${kind}/${name}`;
        const level = levelOf(item);
        if (!this.places.has(place)) {
          this.places.set(place, `many/${kind}/${level}`);
          counts.set(level, (counts.get(level) ?? 0) + 1);
        }
      }
      for (const level of LEVELS) if (counts.get(level)) cards.push({ id: `many/${kind}/${level}`, level, count: counts.get(level) });
    }
    return { kind, size: all.length, cards, none };
  }

  card(kind, name, item, describeItem) {
    const id = `${kind}/${name}`;
    this.places.set(id, id);
    return {
      id,
      name,
      label: item.label ?? item.id,
      level: levelOf(item),
      lines: describeItem(item).filter(Boolean),
      open: item.open ?? [kind, name],
    };
  }

  /** Finds the edges, at most one between two cards. */
  connect() {
    for (const [name, machine] of machines(this.store)) {
      this.edge(`cloud/${machine.cloud}`, `machine/${name}`);
      this.edge(`machine/${name}`, `node/${machine.node}`);
    }
    let budget = ALL_TARGETS;
    for (const [name, balancer] of balancers(this.store)) {
      const targets = balancer.targets.slice(0, Math.min(TARGETS, budget));
      budget -= targets.length;
      for (const target of targets) this.edge(`node/${target.node}`, `loadBalancer/${name}`, target.state);
      this.edge(`loadBalancer/${name}`, `service/${balancer.service}`);
    }
  }

  edge(from, to, state) {
    const ends = [this.places.get(from), this.places.get(to)];
    if (!ends[0] || !ends[1]) return;
    const key = ends.join("\n");
    const edge = this.edges.get(key) ?? { from: ends[0], to: ends[1], isBroken: true };
    edge.isBroken &&= state === "unhealthy" || state === "draining";
    this.edges.set(key, edge);
  }
}

/** Machines of the document, and those that are known through their Nodes only. */
function machines(store) {
  const all = new Map(store.all("machine"));
  for (const [name, node] of store.all("node")) {
    const key = `${node.cloud}/${node.machine}`;
    if (!node.machine || all.has(key)) continue;
    const level = MACHINE_LEVELS[node.machineState] ?? "unknown";
    all.set(key, {
      id: node.machine,
      cloud: node.cloud,
      node: name,
      state: node.machineState,
      instanceType: node.instanceType,
      health: { level },
      open: ["node", name],
    });
  }
  return all;
}

/** Load balancers of the document, and those that are known through their Services only, all with targets. */
function balancers(store) {
  const all = new Map();
  for (const [name, balancer] of store.all("loadBalancer")) {
    const targets = balancer.listeners.flatMap((listener) => listener.targets);
    all.set(name, { ...balancer, label: name.slice(name.indexOf("/") + 1), targets });
  }
  for (const [name, service] of store.all("service")) {
    const key = `${service.cloud}/${service.loadBalancer}`;
    if (!service.loadBalancer || all.has(key) || service.observed?.exists === false) continue;
    all.set(key, {
      label: service.loadBalancer,
      cloud: service.cloud,
      service: name,
      addresses: service.addresses,
      targets: service.targets ?? [],
      targetCount: service.targetCount,
      health: service.health,
      open: ["service", name],
    });
  }
  return all;
}

const cloudLines = (cloud) => [
  joinedText(cloud.provider, cloud.region),
  cloud.health?.level === "ok" ? "" : user(cloud.health?.reason, 60),
];
const machineLines = (machine) => [joinedText(machine.state, machine.instanceType), machine.hidden ? "hidden from the cloud's API" : ""];
const balancerLines = (balancer) => [
  balancer.addresses?.[0] && code(balancer.addresses[0], 60),
  balancer.targets.length
    ? plural(balancer.targetCount ?? new Set(balancer.targets.map((target) => target.node)).size, "target")
    : "no targets",
];

function nodeLines(node, routes) {
  const route = node.podCidrs?.length ? [...node.podCidrs.slice(0, 2)].join(", ") : "";
  const level = levelOf(node);
  return [
    level === "ok" ? "" : user(node.health?.reason, 60),
    route && h("span", { class: "with-icon" }, h("span", { class: "sr" }, "Pods "), code(route, 60)),
  ];
}

function serviceLines(service) {
  const address = service.addresses?.[0];
  return [
    address ? code(address, 60) : user(service.health?.reason ?? "no address", 60),
    user((service.ports ?? []).map((port) => port.split(" →")[0]).join(", "), 60),
  ];
}

const joinedText = (...texts) => user(texts.filter(Boolean).join(" · "), 80);

// ---- lines

/** Draws the lines between the cards, after they have their positions. */
function connect(picture, model) {
  picture.model = model;
  cancelAnimationFrame(picture.frame);
  picture.frame = requestAnimationFrame(() => draw(picture));
}

function draw(picture) {
  const svg = picture.querySelector("svg.edges");
  if (!svg || getComputedStyle(svg).display === "none") return;
  const frame = picture.getBoundingClientRect();
  const boxes = new Map();
  for (const card of picture.querySelectorAll("[data-id]")) boxes.set(card.dataset.id, card.getBoundingClientRect());
  const lines = [];
  for (const edge of picture.model.edges.values()) {
    const [from, to] = [boxes.get(edge.from), boxes.get(edge.to)];
    if (from && to) lines.push({ edge, d: curve(from, to, frame) });
  }
  svg.setAttribute("width", frame.width);
  svg.setAttribute("height", frame.height);
  while (svg.childElementCount > lines.length) svg.lastElementChild.remove();
  while (svg.childElementCount < lines.length) svg.append(document.createElementNS(svg.namespaceURI, "path"));
  lines.forEach(({ edge, d }, index) => {
    const path = svg.children[index];
    path.setAttribute("d", d);
    path.classList.toggle("broken", edge.isBroken && edge.from.startsWith("node/"));
    path.edge = edge;
  });
  mark(picture);
}

function curve(from, to, frame) {
  const [x1, y1] = [from.right - frame.left, from.top + from.height / 2 - frame.top];
  const [x2, y2] = [to.left - frame.left, to.top + to.height / 2 - frame.top];
  const middle = (x1 + x2) / 2;
  return `M${x1.toFixed(1)} ${y1.toFixed(1)}C${middle.toFixed(1)} ${y1.toFixed(1)} ${middle.toFixed(1)} ${y2.toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`;
}

function highlight(event) {
  const card = event.target.closest("[data-id]");
  const picture = event.currentTarget;
  if (!card && event.type === "pointerover") return;
  picture.lit = card?.dataset.id;
  mark(picture);
}

function clear(event) {
  event.currentTarget.lit = undefined;
  mark(event.currentTarget);
}

/** Marks the cards and lines on the paths through the highlighted card: everything left and right of it that it is connected with. */
function mark(picture) {
  const lit = picture.lit && new Set([picture.lit]);
  const edges = [...picture.model.edges.values()];
  if (lit) {
    walk(lit, edges, picture.lit, "from", "to");
    walk(lit, edges, picture.lit, "to", "from");
  }
  for (const card of picture.querySelectorAll("[data-id]")) card.toggleAttribute("data-dim", Boolean(lit) && !lit.has(card.dataset.id));
  for (const path of picture.querySelectorAll("path[d]")) {
    if (!path.edge) continue;
    const isLit = lit && lit.has(path.edge.from) && lit.has(path.edge.to);
    path.toggleAttribute("data-lit", Boolean(isLit));
    path.toggleAttribute("data-dim", Boolean(lit) && !isLit);
  }
}

function walk(found, edges, start, near, far) {
  const next = [start];
  while (next.length) {
    const id = next.pop();
    for (const edge of edges) {
      if (edge[near] === id && !found.has(edge[far])) {
        found.add(edge[far]);
        next.push(edge[far]);
      }
    }
  }
}

/** What goes on, in three charts. */
function activity(app) {
  const now = app.now();
  const waiting = [...app.store.all("queue").keys()];
  const clouds = [...app.store.all("cloud").values()];
  const calls = app.memo("calls", `${app.store.versionOf("cloud")}/${Math.floor(now / 10000)}`, () =>
    sum(clouds.map((cloud) => intervals(cloud.calls, now))),
  );
  const total = (prefix) => sumSeries(waiting.map((name) => app.history.get(`${prefix}/${name}`)));
  const hasTraffic = app.store.all("loadBalancer").size > 0;
  return h(
    "section",
    { class: "panel", "aria-labelledby": "activity" },
    h(
      "div",
      { class: "heading" },
      h("h2", { id: "activity" }, "Activity"),
      explain(app, "calls"),
      h("a", { class: "more-link", href: to("now") }, "What happens now"),
    ),
    h(
      "div",
      { class: "charts" },
      chart({
        title: "Cloud calls per 10 s",
        now,
        width: 10000,
        format: short,
        series: [
          { name: "calls", tone: "a", shape: "bar", points: calls.map(([time, value]) => [time, value.calls]) },
          { name: "failed", tone: "error", shape: "bar", points: calls.map(([time, value]) => [time, value.failed]) },
        ],
      }),
      chart({
        title: "Names in queues",
        now,
        format: short,
        series: [
          { name: "waiting or in work", tone: "a", shape: "area", points: total("waiting") },
          { name: "delayed", tone: "b", shape: "line", points: total("delayed") },
        ],
      }),
      hasTraffic &&
        chart({
          title: "Load balancer traffic",
          now,
          format: (value) => `${bytes(value)}/s`,
          series: [{ name: "bytes", tone: "a", shape: "area", points: app.history.get("bytes/") }],
        }),
    ),
  );
}

/** Sums intervals of several clouds. */
function sum(all) {
  return (all[0] ?? []).map(([time], index) => {
    const values = all.map((each) => each[index][1]).filter(Boolean);
    return [
      time,
      { calls: values.reduce((total, value) => total + value.calls, 0), failed: values.reduce((total, value) => total + value.failed, 0) },
    ];
  });
}

/** Sums values that were recorded at the same times. */
function sumSeries(all) {
  const sums = new Map();
  for (const points of all) for (const [time, value] of points) sums.set(time, (sums.get(time) ?? 0) + value);
  return [...sums].sort(([a], [b]) => a - b);
}
