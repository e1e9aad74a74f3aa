// The lists: which rows and columns each has.

import { h } from "./dom.js";
import { EXPLANATIONS } from "./explain.js";
import { ago, clock, count, latency, millis, until } from "./format.js";
import { Grid, byHealth } from "./grid.js";
import { code, explain, health, href, icon, levelOf, link, mainWork, nextTry, queuesOf, targetCount, user } from "./parts.js";

/** Rows of a kind, computed again when its items have changed. */
function rowsOf(app, kind, text) {
  return () =>
    app.memo(`rows/${kind}`, app.store.versionOf(kind), () =>
      [...app.store.all(kind)].map(([name, item]) => ({
        key: `${kind}/${name}`,
        name,
        item,
        // Read when the row is drawn, because it contains the current filters.
        get href() {
          return href(app, kind, name);
        },
        text: [name, item.health?.reason, item.health?.message, ...text(item)].filter(Boolean).join(" ").slice(0, 4000).toLowerCase(),
      })),
    );
}

function list(app, kind, options) {
  return new Grid(app, { rows: rowsOf(app, kind, options.text), version: () => app.store.versionOf(kind), ...options });
}

const name = (title, cell) => ({ name: title, cell: cell ?? ((row) => user(row.name, 160)), size: "name" });
const healthColumn = { name: "Health", cell: (row) => health(row.item), sort: byHealth, size: "health-cell" };
const cloudColumn = { name: "Cloud", cell: (row) => user(row.item.cloud ?? "–", 60), sort: (row) => row.item.cloud, extra: true };

export function lists(app) {
  const first = (values, length = 80) =>
    values?.length
      ? [code(values[0], length), values.length > 1 ? h("span", { class: "muted" }, ` +${count(values.length - 1)}`) : null]
      : h("span", { class: "muted" }, "–");
  const next = {
    name: "Next try",
    cell: (row) => nextTry(app, mainWork(row.item)) ?? h("span", { class: "muted" }, "–"),
    sort: (row) => (mainWork(row.item)?.next ? millis(mainWork(row.item).next) : Infinity),
    extra: true,
  };
  return {
    nodes: list(app, "node", {
      view: "nodes",
      title: "Nodes",
      explain: "nodes",
      none: "No kubelet has registered a Node yet.",
      text: (node) => [
        node.cloud,
        node.providerId,
        node.instanceType,
        node.zone,
        ...(node.addresses ?? []),
        ...(node.taints ?? []),
        ...(node.podCidrs ?? []),
      ],
      columns: [
        name("Node"),
        healthColumn,
        cloudColumn,
        {
          name: "Machine",
          cell: (row) => [
            user(row.item.machineState),
            row.item.instanceType ? h("span", { class: "muted" }, " ", user(row.item.instanceType, 60)) : null,
          ],
          sort: (row) => row.item.machineState,
          extra: true,
        },
        { name: "Zone", cell: (row) => user(row.item.zone ?? "–", 60), sort: (row) => row.item.zone, extra: true },
        {
          name: "Address",
          cell: (row) => code(row.item.addresses?.[0]?.split(" ").at(-1) ?? "–", 60),
          sort: (row) => row.item.addresses?.[0],
          extra: true,
        },
        { name: "Pod CIDR", cell: (row) => first(row.item.podCidrs, 40), sort: (row) => row.item.podCidrs?.[0], extra: true },
      ],
    }),
    services: list(app, "service", {
      view: "services",
      title: "Services",
      explain: "services",
      none: "There is no Service of type LoadBalancer yet.",
      text: (service) => [service.cloud, service.loadBalancer, ...(service.addresses ?? []), ...(service.ports ?? [])],
      columns: [
        name("Service"),
        healthColumn,
        { name: "Address", cell: (row) => first(row.item.addresses), sort: (row) => row.item.addresses?.[0], extra: true },
        {
          name: "Ports",
          cell: (row) => first(row.item.ports?.map((port) => port.split(" →")[0])),
          sort: (row) => row.item.ports?.[0],
          extra: true,
        },
        {
          name: "Targets",
          cell: (row) => count(targetCount(row.item)),
          sort: (row) => targetCount(row.item),
          size: "number",
          extra: true,
        },
        cloudColumn,
        next,
      ],
    }),
    "load-balancers": list(app, "loadBalancer", {
      view: "load-balancers",
      title: "Load balancers",
      explain: "loadBalancers",
      none: "The manager knows load balancers other than through their Services only in the playground, and those of L4 agents. See the details of a Service.",
      text: (balancer) => [balancer.cloud, balancer.service, ...(balancer.addresses ?? [])],
      columns: [
        name("Load balancer"),
        healthColumn,
        {
          name: "Service",
          cell: (row) => (row.item.service ? link(app, "service", row.item.service) : "–"),
          sort: (row) => row.item.service,
          extra: true,
        },
        { name: "Address", cell: (row) => first(row.item.addresses), sort: (row) => row.item.addresses?.[0], extra: true },
        {
          name: "Connections",
          cell: (row) => count(row.item.connections),
          sort: (row) => row.item.connections,
          size: "number",
          extra: true,
        },
        cloudColumn,
      ],
    }),
    routes: list(app, "route", {
      view: "routes",
      title: "Routes",
      explain: "routes",
      none: "The cloud has no routes to pod CIDRs. Clusters with an overlay network need none.",
      text: (route) => [route.cloud, route.node, route.destination],
      columns: [
        name("Destination", (row) => code(row.item.destination, 80)),
        healthColumn,
        { name: "Node", cell: (row) => link(app, "node", row.item.node), sort: (row) => row.item.node, extra: true },
        cloudColumn,
      ],
    }),
    machines: list(app, "machine", {
      view: "machines",
      title: "Machines",
      explain: "machines",
      none: "The manager knows machines other than through their Nodes only in the playground. See the details of a Node.",
      text: (machine) => [machine.cloud, machine.id, machine.node, machine.state, machine.zone, ...(machine.addresses ?? [])],
      columns: [
        name("Machine", (row) => user(row.item.id, 160)),
        healthColumn,
        { name: "State", cell: (row) => user(row.item.state), sort: (row) => row.item.state, extra: true },
        { name: "Node", cell: (row) => link(app, "node", row.item.node), sort: (row) => row.item.node, extra: true },
        { name: "Type", cell: (row) => user(row.item.instanceType, 60), sort: (row) => row.item.instanceType, extra: true },
        { name: "Zone", cell: (row) => user(row.item.zone, 60), sort: (row) => row.item.zone, extra: true },
        cloudColumn,
      ],
    }),
    clouds: list(app, "cloud", {
      view: "clouds",
      title: "Clouds",
      explain: "clouds",
      none: "No cloud is configured.",
      text: (cloud) => [cloud.provider, cloud.region, ...Object.values(cloud.details ?? {})],
      columns: [
        name("Cloud"),
        healthColumn,
        { name: "Provider", cell: (row) => user(row.item.provider, 60), sort: (row) => row.item.provider, extra: true },
        { name: "Region", cell: (row) => user(row.item.region ?? "–", 60), sort: (row) => row.item.region, extra: true },
        {
          name: "Calls in progress",
          cell: (row) => count(row.item.calls?.inProgress ?? 0),
          sort: (row) => row.item.calls?.inProgress ?? 0,
          size: "number",
          extra: true,
        },
      ],
    }),
    events: events(app),
    calls: calls(app),
  };
}

function events(app) {
  const grid = list(app, "event", {
    view: "events",
    title: "Events",
    explain: "events",
    hasLevels: true,
    defaultSort: "-Time",
    none: "This process has emitted no Event yet.",
    text: () => [],
    columns: [
      {
        name: "Reason",
        cell: (row) => [icon(levelOf(row.item)), " ", user(row.item.reason, 60)],
        sort: (row) => row.item.reason,
        size: "health-cell",
      },
      {
        name: "Object",
        cell: (row) => [h("span", { class: "muted" }, user(row.item.objectKind, 30), " "), user(row.item.object, 160)],
        sort: (row) => row.item.object,
      },
      {
        name: "Message",
        cell: (row) => [
          row.item.count > 1 ? h("span", { class: "muted" }, `${count(row.item.count)} × `) : null,
          user(row.item.message, 300),
        ],
        sort: (row) => row.item.message,
        size: "wide-cell",
        extra: true,
      },
      { name: "Controller", cell: (row) => user(row.item.controller, 60), sort: (row) => row.item.controller, extra: true },
      {
        name: "Time",
        cell: (row) => h("time", { datetime: row.item.at, title: row.item.at }, ago(row.item.at, app.now())),
        sort: (row) => millis(row.item.at),
        size: "time",
      },
    ],
  });
  grid.rows = () =>
    app.memo("rows/event", app.store.versionOf("event"), () =>
      [...app.store.all("event")].map(([number, event]) => ({
        key: `event/${number}`,
        name: number,
        item: { ...event, health: { level: event.type === "Warning" ? "warning" : "ok" } },
        get href() {
          return href(app, "event", number);
        },
        text: `${event.reason} ${event.objectKind} ${event.object} ${event.message} ${event.controller}`.slice(0, 4000).toLowerCase(),
      })),
    );
  return grid;
}

function calls(app) {
  const rows = () =>
    app.memo("rows/calls", app.store.versionOf("cloud"), () =>
      [...app.store.all("cloud")].flatMap(([cloud, { calls }]) =>
        (calls?.recent ?? []).map((call, index) => ({
          key: `call/${cloud}/${call.at}/${index}`,
          name: call.call,
          item: { ...call, cloud, health: { level: call.outcome === "ok" ? "ok" : "warning" } },
          get href() {
            return href(app, "cloud", cloud);
          },
          text: `${cloud} ${call.service} ${call.call} ${call.outcome} ${call.error ?? ""}`.toLowerCase(),
        })),
      ),
    );
  return new Grid(app, {
    view: "calls",
    title: "Cloud calls",
    explain: "calls",
    defaultSort: "-Time",
    none: "No call to a cloud has finished yet.",
    rows,
    version: () => app.store.versionOf("cloud"),
    columns: [
      {
        name: "Call",
        cell: (row) => [h("span", { class: "muted" }, user(row.item.service, 40), " "), user(row.item.call, 80)],
        sort: (row) => row.item.call,
        size: "name",
      },
      {
        name: "Outcome",
        cell: (row) => [icon(levelOf(row.item)), " ", user(row.item.outcome, 60)],
        sort: (row) => row.item.outcome,
        size: "health-cell",
      },
      { name: "Error", cell: (row) => user(row.item.error, 300), sort: (row) => row.item.error, extra: true },
      { name: "Duration", cell: (row) => latency(row.item.ms), sort: (row) => row.item.ms, size: "number", extra: true },
      cloudColumn,
      {
        name: "Time",
        cell: (row) => h("time", { datetime: row.item.at, title: row.item.at }, clock(millis(row.item.at))),
        sort: (row) => millis(row.item.at),
        size: "time",
      },
    ],
  });
}

/** Controllers, each with what it does, and watches. */
export function controllers(app) {
  const all = [...app.store.all("controller")];
  const card = ([name, controller]) =>
    h(
      "li",
      { key: name, class: "panel controller" },
      h("div", { class: "heading" }, h("h2", {}, link(app, "controller", name)), health(controller)),
      h("p", {}, EXPLANATIONS[name]?.text ?? "A controller of this manager."),
      controller.health?.message ? h("p", {}, user(controller.health.message, 400)) : null,
      queuesOf(app, name).map(([queue, state]) =>
        h(
          "p",
          { key: queue, class: "muted" },
          "Queue ",
          link(app, "queue", queue),
          `: ${count(state.waiting)} waiting, ${count(state.inWork)} in work, ${count(state.delayed)} delayed, ${count(state.finished)} syncs`,
        ),
      ),
      Object.entries(controller.loops ?? {}).map(([loop, state]) =>
        h(
          "p",
          { key: `loop/${loop}`, class: "muted" },
          icon(levelOf(state)),
          " Loop ",
          user(loop, 80),
          state.running ? ": runs" : state.next ? `: next run ${until(state.next, app.now())}` : "",
          state.summary ? [" · ", user(state.summary, 200)] : null,
        ),
      ),
    );
  const shown = new Set(all.flatMap(([name]) => queuesOf(app, name).map(([queue]) => queue)));
  const others = [...app.store.all("queue")].filter(([name]) => !shown.has(name));
  const line =
    (kind, text) =>
    ([name, item]) =>
      h("li", { key: name }, icon(levelOf(item)), h("div", {}, link(app, kind, name), h("span", { class: "muted" }, " ", text(item))));
  return [
    h("div", { class: "view-head" }, h("h1", { tabindex: "-1" }, "Controllers and queues"), explain(app, "controllers")),
    all.length ? h("ul", { class: "panels plain" }, all.map(card)) : h("p", { class: "empty" }, "No controller has started yet."),
    others.length
      ? h(
          "section",
          { class: "panel" },
          h("div", { class: "heading" }, h("h2", {}, "Other queues"), explain(app, "queues")),
          h(
            "ul",
            { class: "entries" },
            others.map(line("queue", (queue) => `${count(queue.waiting)} waiting, ${count(queue.inWork)} in work`)),
          ),
        )
      : null,
    app.store.all("watch").size
      ? h(
          "section",
          { class: "panel" },
          h("div", { class: "heading" }, h("h2", {}, "Watches"), explain(app, "watches")),
          h("ul", { class: "entries" }, [...app.store.all("watch")].map(line("watch", (watch) => `${count(watch.objects)} objects`))),
        )
      : null,
  ];
}
