// Details of one item, beside the view that it was opened from.

import { chart } from "./charts.js";
import { h } from "./dom.js";
import { EXPLANATIONS } from "./explain.js";
import { ago, bytes, clock, count, latency, millis, plural, short, table, until, visible, words } from "./format.js";
import {
  KINDS,
  LEVEL_NAMES,
  age,
  code,
  command,
  describe,
  explain,
  facts,
  heading,
  health,
  icon,
  joined,
  levelOf,
  lines,
  link,
  long,
  mainWork,
  nextTry,
  queuesOf,
  targetCount,
  user,
  workState,
} from "./parts.js";
import { split } from "./feed.js";
import { machineActions } from "./playground.js";
import { callCharts, callFacts } from "./now.js";

export function details(app) {
  const key = app.route.get("item");
  if (!key) return [];
  const [kind, name] = split(key);
  const item = app.store.get(kind, name);
  const close = () => app.closeDetails();
  const head = h(
    "div",
    { class: "details-head" },
    h("p", { class: "kind" }, KINDS[kind]?.one ?? "Item", " ", KINDS[kind] && explain(app, KINDS[kind].explain)),
    h("button", { type: "button", class: "close", "aria-label": "Close the details", onclick: close }, "×"),
    h("h2", { tabindex: "-1", id: "details-title" }, long(name || key)),
  );
  if (!item || !VIEWS[kind]) return [head, h("p", { class: "empty" }, gone(app, kind))];
  return [head, state(app, kind, name, item), h("div", { key, class: "details-body" }, VIEWS[kind](app, name, item))];
}

const gone = (app, kind) =>
  app.feed.receivedAt ? `This ${KINDS[kind]?.one ?? "item"} does not exist, or no longer.` : "Waiting for the document.";

/** Health with its reason, message, next try and commands. */
function state(app, kind, name, item) {
  if (!item.health) return null;
  const level = levelOf(item);
  const work = mainWork(item);
  const { reason } = item.health;
  const title = reason && reason !== LEVEL_NAMES[level] ? [`${LEVEL_NAMES[level]}: `, user(reason, 80)] : [LEVEL_NAMES[level]];
  return h(
    "div",
    { class: `state state-${level}` },
    h("p", { class: "state-title" }, icon(level, true), ...title),
    item.health.message ? h("p", {}, long(item.health.message)) : null,
    nextTry(app, work) &&
      h("p", { class: "muted" }, joined(nextTry(app, work), work.failures ? `${plural(work.failures, "failure")} in a row` : "")),
  );
}

const section = (app, title, explanation, ...content) => h("section", { key: title }, heading(app, 3, title, explanation), ...content);

/** The command that shows more. */
const more = (app, kind, name) =>
  describe(kind, name) ? section(app, "With kubectl", undefined, command(app, describe(kind, name))) : null;

/** Steps of which the first one that is not done is what is waited for. */
function path(app, steps) {
  const current = steps.findIndex((step) => !step.isDone);
  return h(
    "ol",
    { class: "path" },
    steps.map((step, index) => {
      const status = step.isDone ? "done" : index === current ? "current" : "todo";
      const text = { done: "done", current: "waited for", todo: "to do" }[status];
      return h(
        "li",
        { key: step.title, class: `step-${status}`, "aria-current": status === "current" ? "step" : undefined },
        h("span", { class: "step-mark", "aria-hidden": "true" }, step.isDone ? "✓" : index === current ? "●" : "○"),
        h("span", {}, step.title, h("span", { class: "sr" }, ` (${text})`), step.by ? h("span", { class: "muted by" }, step.by) : null),
      );
    }),
  );
}

function workFacts(app, work) {
  return facts([
    ["State", joined(workState(work), work.since && ["since ", age(app, work.since)])],
    ["Next", nextTry(app, work)],
    ["Failures in a row", work.failures ? count(work.failures) : undefined],
    ["Last sync", work.last && joined(age(app, work.last), work.tookMs === undefined ? undefined : `took ${latency(work.tookMs)}`)],
    ["Error", work.error && long(work.error)],
  ]);
}

function eventsOf(app, kind, name) {
  const all = [...app.store.all("event")].filter(([, event]) => event.objectKind === kind && event.object === name);
  const events = all.sort(([, a], [, b]) => millis(b.at) - millis(a.at)).slice(0, 10);
  if (!events.length) return null;
  const row = ([number, event]) =>
    h(
      "li",
      { key: number },
      icon(event.type === "Warning" ? "warning" : "ok"),
      h(
        "div",
        {},
        h("p", {}, h("strong", {}, user(event.reason, 60)), " ", h("span", { class: "muted" }, age(app, event.at))),
        h("p", {}, long(event.message)),
      ),
    );
  return section(app, "Events", "events", h("ul", { class: "entries" }, events.map(row)));
}

const VIEWS = table({
  node(app, name, node) {
    const machine = app.store.get("machine", `${node.cloud}/${node.machine}`);
    const route = [...app.store.all("route")].find(([, route]) => route.node === name);
    const services = [...app.store.all("service")].filter(([, service]) => service.targets?.some((target) => target.node === name));
    const shown = services.slice(0, 30);
    return [
      node.held &&
        section(app, "Deletion is held", "held", h("p", {}, long(node.held.message)), node.held.command && command(app, node.held.command)),
      node.uninitialized || levelOf(node) !== "ok"
        ? section(app, "From machine to working Node", "nodePath", path(app, nodePath(app, node, route)))
        : null,
      section(
        app,
        "Machine",
        "machines",
        facts([
          ["Cloud", node.cloud && link(app, "cloud", node.cloud)],
          ["Machine", node.machine && link(app, machine ? "machine" : "", `${node.cloud}/${node.machine}`, node.machine)],
          ["State", user(node.machineState)],
          ["Provider ID", node.providerId && code(node.providerId, 300)],
          ["Type", node.instanceType && user(node.instanceType)],
          ["Zone", user([node.zone, node.region].filter(Boolean).join(" in "))],
        ]),
        machine && machineActions(app, `${node.cloud}/${node.machine}`, machine),
      ),
      section(
        app,
        "Node",
        "nodes",
        facts([
          ["Ready", user(node.ready)],
          ["Created", age(app, node.created)],
          [
            "Marks",
            [node.deleting && "being deleted", node.paused && "paused by an operator", node.uninitialized && "not initialised"]
              .filter(Boolean)
              .join(", "),
          ],
        ]),
      ),
      section(app, "Addresses", "addresses", lines(node.addresses) ?? h("p", { class: "muted" }, "none")),
      section(app, "Taints", "taints", lines(node.taints) ?? h("p", { class: "muted" }, "none")),
      node.podCidrs?.length || route
        ? section(
            app,
            "Pod CIDR and route",
            "podCidrs",
            facts([
              ["Pod CIDR", lines(node.podCidrs)],
              ["Route", route && [health(route[1]), " ", link(app, "route", route[0], route[1].destination)]],
            ]),
          )
        : null,
      services.length
        ? section(
            app,
            "Target of Services",
            "targets",
            h(
              "ul",
              { class: "plain" },
              shown.map(([key, service]) => h("li", { key }, icon(levelOf(service)), " ", link(app, "service", key))),
            ),
            services.length > shown.length && h("p", { class: "muted" }, `and ${count(services.length - shown.length)} more`),
          )
        : null,
      Object.entries(node.work ?? {}).map(([controller, work]) =>
        h(
          "section",
          { key: `work/${controller}` },
          heading(app, 3, user(controller), EXPLANATIONS[controller] ? controller : "work"),
          workFacts(app, work),
        ),
      ),
      eventsOf(app, "Node", name),
      more(app, "node", name),
    ];
  },

  service(app, name, service) {
    const key = `${service.cloud}/${service.loadBalancer}`;
    const balancer = app.store.get("loadBalancer", key);
    const { plan, observed, condition } = service;
    return [
      section(app, "From kubectl apply to an address", "servicePath", path(app, servicePath(service, balancer))),
      section(
        app,
        "Desired",
        "desired",
        facts([
          ["Type", user(service.type)],
          ["Ports", lines(service.ports)],
          ["Traffic policy", user(service.trafficPolicy)],
          ["Class", service.class && code(service.class)],
          ["Created", age(app, service.created)],
          ["Marks", [service.deleting && "being deleted", service.paused && "paused by an operator"].filter(Boolean).join(", ")],
        ]),
      ),
      section(
        app,
        "Observed",
        "observed",
        facts([
          ["Address", lines(service.addresses) ?? "none yet"],
          ["Cloud", service.cloud && link(app, "cloud", service.cloud)],
          [
            "Load balancer",
            service.loadBalancer &&
              (balancer ? [health(balancer), " ", link(app, "loadBalancer", key, service.loadBalancer)] : code(service.loadBalancer)),
          ],
          ["Exists", observed && joined(observed.exists ? "yes" : "no", ["seen ", age(app, observed.at)])],
          ["In progress", observed?.pending && user(observed.pending, 400)],
          ["Errors", lines(observed?.errors)],
        ]),
      ),
      condition &&
        section(
          app,
          "Condition LoadBalancerReady",
          "condition",
          facts([
            ["Status", user(condition.status)],
            ["Reason", user(condition.reason)],
            ["Message", condition.message && long(condition.message)],
          ]),
        ),
      plan && section(app, "Last plan", "plan", lastPlan(app, plan)),
      section(app, "Targets", "targets", targets(app, service, balancer)),
      section(app, "Work queue", "work", workFacts(app, service.work ?? {})),
      eventsOf(app, "Service", name),
      more(app, "service", name),
    ];
  },

  loadBalancer(app, name, balancer) {
    return [
      section(
        app,
        "Load balancer",
        "loadBalancers",
        facts([
          ["Cloud", link(app, "cloud", balancer.cloud)],
          ["Service", balancer.service && link(app, "service", balancer.service)],
          ["Addresses", lines(balancer.addresses)],
          ["Connections", count(balancer.connections)],
          ["Bytes", bytes(balancer.bytes)],
        ]),
      ),
      section(app, "Traffic", "traffic", traffic(app, name)),
      balancer.listeners.map((listener) =>
        section(app, `Listener ${visible(listener.port).slice(0, 40)}`, "targets", listenerTargets(app, listener.targets)),
      ),
    ];
  },

  machine(app, name, machine) {
    return [
      section(
        app,
        "Machine",
        "machines",
        facts([
          ["Cloud", link(app, "cloud", machine.cloud)],
          ["Node", link(app, "node", machine.node)],
          ["State", user(machine.state)],
          ["Hidden", machine.hidden ? "yes: the cloud's API does not list it" : undefined],
          ["Type", user(machine.instanceType)],
          ["Zone", user(machine.zone)],
          ["Addresses", lines(machine.addresses)],
        ]),
      ),
      machineActions(app, name, machine),
    ];
  },

  route(app, name, route) {
    return [
      section(
        app,
        "Route",
        "routes",
        facts([
          ["Pod CIDR", code(route.destination)],
          ["Node", link(app, "node", route.node)],
          ["Cloud", link(app, "cloud", route.cloud)],
        ]),
      ),
    ];
  },

  cloud(app, name, cloud) {
    return [
      section(
        app,
        "Cloud",
        "clouds",
        facts([
          ["Provider", user(cloud.provider)],
          ["Region", cloud.region && user(cloud.region)],
          ["Supports", (cloud.capabilities ?? []).map((name) => CAPABILITIES[name] ?? words(name)).join(", ")],
          ...Object.entries(cloud.details ?? {}).map(([key, value]) => [visible(key).slice(0, 60), user(value, 400)]),
        ]),
      ),
      section(app, "Cloud calls", "calls", callCharts(app, cloud.calls ?? {})),
      section(app, "Budget and rate limit", "budget", callFacts(app, cloud.calls ?? {})),
    ];
  },

  controller(app, name, controller) {
    const entry = EXPLANATIONS[name];
    const queues = queuesOf(app, name);
    return [
      entry && h("p", {}, entry.text),
      section(app, "Controller", "controllers", facts([["Running", controller.running ? "yes" : "no"]])),
      queues.map(([queue, state]) =>
        h("section", { key: `queue/${queue}` }, heading(app, 3, ["Queue ", user(queue)], "queues"), queueFacts(app, state)),
      ),
      Object.entries(controller.loops ?? {}).map(([loop, state]) =>
        h("section", { key: `loop/${loop}` }, heading(app, 3, ["Loop ", user(loop)], "loops"), loopFacts(app, state)),
      ),
    ];
  },

  queue(app, name, queue) {
    return [section(app, "Queue", "queues", queueFacts(app, queue))];
  },

  watch(app, name, watch) {
    return [section(app, "Watch", "watches", facts([["Objects", count(watch.objects)]]))];
  },

  manager(app, name, manager) {
    return [
      section(
        app,
        "Manager",
        "leader",
        facts([
          ["Version", user(manager.version)],
          ["Started", age(app, manager.started)],
          ["Cluster", manager.cluster && user(manager.cluster)],
          ["Leader", manager.leader ? "yes" : "no"],
        ]),
      ),
    ];
  },

  event(app, name, event) {
    const kind = { Node: "node", Service: "service" }[event.objectKind];
    return [
      h("p", { class: "state-title" }, icon(event.type === "Warning" ? "warning" : "ok", true), user(event.type), ": ", user(event.reason)),
      h("p", {}, long(event.message)),
      section(
        app,
        "Event",
        "events",
        facts([
          ["Object", [user(event.objectKind), " ", kind ? link(app, kind, event.object) : user(event.object)]],
          ["Controller", user(event.controller)],
          ["Time", [clock(millis(event.at)), ", ", age(app, event.at)]],
          ["Emitted", event.count > 1 ? `${count(event.count)} times in a row` : undefined],
        ]),
      ),
    ];
  },
});

const CAPABILITIES = table({ loadBalancers: "load balancers", podCidrs: "pod CIDRs" });

function queueFacts(app, queue) {
  return facts([
    ["Waiting", count(queue.waiting)],
    ["In work", count(queue.inWork)],
    ["Delayed", count(queue.delayed)],
    ["Oldest", queue.oldest && joined("waiting since ", age(app, queue.oldest))],
    ["Syncs", `${count(queue.finished)}, of which ${count(queue.failed)} failed`],
  ]);
}

function loopFacts(app, loop) {
  return facts([
    ["Health", [health(loop), loop.health?.message ? [" ", long(loop.health.message)] : null]],
    ["State", joined(loop.running ? "runs" : "waits", loop.since && ["since ", age(app, loop.since)])],
    ["Next run", loop.next && until(loop.next, app.now())],
    ["Runs", joined(count(loop.runs), loop.tookMs === undefined ? "" : `the last one took ${latency(loop.tookMs)}`)],
    ["Result", loop.summary && long(loop.summary)],
    ["Interrupted", loop.interrupted && age(app, loop.interrupted)],
    ["Restarts", loop.restarts ? count(loop.restarts) : undefined],
  ]);
}

/** Steps of a Node until Pods run on it. */
function nodePath(app, node, route) {
  const hasRoutes = app.store.all("controller").has("node-route-controller");
  return [
    { title: "The kubelet registers the Node with the taint uninitialized", by: "kubelet", isDone: true },
    { title: "Its machine is found in the cloud", by: "cloud-node-controller", isDone: Boolean(node.providerId) },
    {
      title: "Addresses, zone and type are written",
      by: "cloud-node-controller",
      isDone: Boolean(node.providerId && node.addresses?.length),
    },
    { title: "The taint uninitialized is removed", by: "cloud-node-controller", isDone: !node.uninitialized },
    node.podCidrs?.length || hasRoutes
      ? { title: "It has a pod CIDR", by: "node-ipam-controller or the cloud", isDone: Boolean(node.podCidrs?.length) }
      : null,
    hasRoutes
      ? { title: "The cloud has a route to its pod CIDR", by: "node-route-controller", isDone: levelOf(route?.[1]) === "ok" }
      : null,
    { title: "The machine runs", by: "cloud-node-lifecycle-controller", isDone: node.machineState === "running" },
    { title: "The kubelet reports ready", by: "kubelet", isDone: node.ready === "True" },
  ].filter(Boolean);
}

/** Steps of a Service until it has an address that works. */
function servicePath(service, balancer) {
  const { observed, plan } = service;
  const isPublished = Boolean(service.addresses?.length);
  const exists = Boolean(balancer || (observed ? observed.exists : isPublished));
  const isApplied = (plan ? plan.outcome === "applied" : isPublished) && exists && !observed?.pending;
  return [
    { title: "The Service exists, with type LoadBalancer", by: "you", isDone: service.type === "LoadBalancer" || !service.type },
    { title: "It has the finalizer, so that its load balancer is deleted with it", by: "service-lb-controller", isDone: service.finalizer },
    { title: "A plan was computed from the desired and the observed state", by: "service-lb-controller", isDone: Boolean(plan) || exists },
    { title: "The cloud has the load balancer", by: "cloud", isDone: exists },
    { title: "All steps of the plan are applied", by: "service-lb-controller", isDone: isApplied },
    { title: "The address is in the status of the Service", by: "service-lb-controller", isDone: isPublished },
    { title: "It has targets", by: "service-lb-controller", isDone: targetCount(service) > 0 },
  ];
}

const OUTCOMES = table({
  inProgress: ["progressing", "in progress"],
  applied: ["ok", "applied"],
  waitingForLock: ["progressing", "waiting for a lock that another plan holds"],
  dryRun: ["unknown", "dry run: not applied"],
  failed: ["error", "failed"],
});
const TRIGGERS = table({
  userChange: "a change of the Service",
  nodes: "a change of Nodes",
  drift: "a change in the cloud, or a regular check",
});

function lastPlan(app, plan) {
  const [level, outcome] = OUTCOMES[plan.outcome] ?? ["unknown", words(plan.outcome)];
  return [
    h(
      "p",
      {},
      icon(level),
      " ",
      outcome,
      ", ",
      age(app, plan.at),
      plan.ended ? `, took ${latency(Math.max(0, millis(plan.ended) - millis(plan.at)))}` : "",
      h("span", { class: "muted" }, ` · caused by ${TRIGGERS[plan.trigger] ?? words(plan.trigger)}`),
    ),
    plan.error && h("p", { class: "error-text" }, long(plan.error)),
    h(
      "ol",
      { class: "steps" },
      plan.steps.map((step, index) =>
        h(
          "li",
          { key: index, class: step.done ? "done" : "open" },
          h("span", { class: "step-mark", "aria-hidden": "true" }, step.done ? "✓" : "○"),
          h(
            "div",
            {},
            h(
              "span",
              {},
              h(
                "span",
                { class: `verb verb-${["create", "update", "delete"].includes(step.verb) ? step.verb : "other"}` },
                user(step.verb, 40),
              ),
              " ",
              user(step.kind),
              " ",
              code(step.name),
              h("span", { class: "sr" }, step.done ? " (applied)" : " (not applied)"),
            ),
            lines(step.changes),
          ),
        ),
      ),
    ),
    plan.stepCount > plan.steps.length && h("p", { class: "muted" }, `and ${plural(plan.stepCount - plan.steps.length, "more step")}`),
    plan.warnings?.length
      ? h(
          "ul",
          { class: "entries" },
          plan.warnings.map((warning) => h("li", {}, icon("warning"), h("div", {}, long(warning)))),
        )
      : null,
  ];
}

const STATES = table({ healthy: "ok", unhealthy: "error", draining: "progressing" });

/** Targets of a Service, with their health if the load balancer is known. */
function targets(app, service, balancer) {
  const others = service.leftOut ? h("p", { class: "muted" }, "Not targets: ", long(service.leftOut)) : null;
  if (!service.targets?.length) return [h("p", { class: "muted" }, "none: no Node is ready, or no sync has finished yet"), others];
  const states = new Map();
  for (const target of balancer?.listeners.flatMap((listener) => listener.targets) ?? []) {
    const worst = states.get(target.node);
    if (!worst || worst === "healthy") states.set(target.node, target.state);
  }
  const rows = service.targets
    .slice(0, 50)
    .map((target) => ({ node: target.node, state: states.get(target.node) ?? (target.draining ? "draining" : undefined) }));
  return [
    listenerTargets(app, rows),
    targetCount(service) > rows.length && h("p", { class: "muted" }, `and ${count(targetCount(service) - rows.length)} more`),
    others,
  ];
}

function listenerTargets(app, targets) {
  const row = (target, index) =>
    h(
      "li",
      { key: `${index}/${target.node}` },
      icon(target.state ? (STATES[target.state] ?? "unknown") : levelOf(app.store.get("node", target.node))),
      " ",
      link(app, "node", target.node),
      h("span", { class: "muted" }, " ", user(target.state, 40), target.address ? [" · ", code(target.address)] : null),
    );
  return targets.length ? h("ul", { class: "plain targets" }, targets.slice(0, 50).map(row)) : h("p", { class: "muted" }, "none");
}

function traffic(app, name) {
  const now = app.now();
  return h(
    "div",
    { class: "charts" },
    chart({
      title: "New connections per second",
      now,
      format: short,
      series: [{ name: "connections", tone: "a", shape: "area", points: app.history.get(`connections/${name}`) }],
    }),
    chart({
      title: "Bytes per second",
      now,
      format: (value) => `${bytes(value)}/s`,
      series: [{ name: "bytes", tone: "b", shape: "area", points: app.history.get(`bytes/${name}`) }],
    }),
  );
}
