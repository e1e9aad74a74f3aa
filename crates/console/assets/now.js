// What happens now: queues, work and back-offs, held deletions, cloud calls, leader and Lease.

import { chart, intervals } from "./charts.js";
import { h } from "./dom.js";
import { bytes, count, duration, latency, millis, plural, short, until, visible, words } from "./format.js";
import { age, code, command, explain, facts, health, icon, joined, levelOf, link, long, nextTry, user, workState } from "./parts.js";
import { to } from "./route.js";

export function now(app) {
  return [
    h("div", { class: "view-head" }, h("h1", { tabindex: "-1" }, "What happens now")),
    h(
      "div",
      { class: "panels" },
      manager(app),
      held(app),
      queues(app),
      work(app),
      [...app.store.all("cloud")].map(([name, cloud], index) => cloudCalls(app, name, cloud, index)),
      trafficPanel(app),
    ),
  ];
}

function panel(app, id, title, explanation, content, { key = id, wide = false, after = null } = {}) {
  return h(
    "section",
    { key, class: `panel${wide ? " wide" : ""}`, "aria-labelledby": `now-${id}` },
    h("div", { class: "heading" }, h("h2", { id: `now-${id}` }, title), explain(app, explanation), after),
    content,
  );
}

function manager(app) {
  const self = app.store.get("manager", "self");
  if (!self) return null;
  const leases = Object.entries(self.leases ?? {});
  return panel(app, "leader", "Leader and Lease", "leader", [
    h(
      "p",
      { class: "state-title" },
      health(self),
      self.health?.message ? h("span", { class: "muted" }, " ", user(self.health.message, 300)) : null,
    ),
    facts([
      ["This process", self.leader ? "is the leader: its controllers run" : "is a standby: it changes nothing"],
      ["Mode", self.dryRun ? "dry run: writes are logged and not sent" : undefined],
      ["Version", user(self.version)],
      ["Cluster", self.cluster && user(self.cluster)],
      ["Running for", self.started && duration(app.now() - millis(self.started))],
    ]),
    leases.map(([name, lease]) => h("section", { key: name }, h("h3", {}, "Lease ", code(name)), leaseFacts(app, lease))),
  ]);
}

const TIMESTAMP = /^\d{4}-\d\d-\d\dT[\d:.]+Z$/;
/** A time before or after now. */
const moment = (app, time) =>
  millis(time) > app.now() ? h("time", { datetime: time, title: time }, until(time, app.now())) : age(app, time);

/** Fields of a lease, as `/statusz` has them. */
function leaseFacts(app, lease) {
  const text = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));
  const shown = (value) => (typeof value === "string" && TIMESTAMP.test(value) ? moment(app, value) : user(text(value), 300));
  return facts(
    Object.entries(lease ?? {})
      .slice(0, 20)
      .map(([name, value]) => [visible(words(name)).slice(0, 40), shown(value)]),
  );
}

function held(app) {
  const nodes = [...app.store.all("node")].filter(([, node]) => node.held);
  if (!nodes.length) return null;
  const entry = ([name, node]) =>
    h(
      "li",
      { key: name },
      icon("warning"),
      h(
        "div",
        {},
        h("p", {}, link(app, "node", name), " ", h("span", { class: "reason-tag tag-warning" }, user(node.held.reason))),
        h("p", {}, long(node.held.message)),
        node.held.command && command(app, node.held.command),
      ),
    );
  return panel(app, "held", `Held deletions: ${count(nodes.length)}`, "held", [
    h("ul", { class: "entries" }, nodes.slice(0, 20).map(entry)),
    nodes.length > 20 && h("p", { class: "muted" }, `and ${count(nodes.length - 20)} more`),
  ]);
}

function queues(app) {
  const all = [...app.store.all("queue")];
  const row = ([name, queue]) =>
    h(
      "tr",
      { key: name },
      h("th", { scope: "row" }, link(app, "queue", name)),
      h("td", {}, icon(levelOf(queue))),
      h("td", { class: "number" }, count(queue.waiting)),
      h("td", { class: "number" }, count(queue.inWork)),
      h("td", { class: "number" }, count(queue.delayed)),
      h("td", { class: "number extra" }, count(queue.finished)),
      h("td", { class: "number extra" }, count(queue.failed)),
      h("td", { class: "extra" }, age(app, queue.oldest) ?? "–"),
    );
  const series = all.slice(0, 4).map(([name], index) => ({
    name: visible(name).slice(0, 40),
    tone: "abcd"[index],
    shape: "line",
    points: app.history.get(`waiting/${name}`),
  }));
  return panel(
    app,
    "queues",
    "Queues",
    "queues",
    all.length
      ? [
          h(
            "table",
            { class: "table" },
            h("caption", { class: "sr" }, "Queues of the controllers"),
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                ["Queue", "Health"].map((name) => h("th", { key: name, scope: "col" }, name)),
                ["Waiting", "In work", "Delayed"].map((name) => h("th", { key: name, scope: "col", class: "number" }, name)),
                ["Syncs", "Failed"].map((name) => h("th", { key: name, scope: "col", class: "number extra" }, name)),
                h("th", { scope: "col", class: "extra" }, "Oldest"),
              ),
            ),
            h("tbody", {}, all.map(row)),
          ),
          h("div", { class: "charts" }, chart({ title: "Waiting or in work", now: app.now(), format: short, series })),
        ]
      : h("p", { class: "empty" }, "No controller has started yet."),
    { wide: true },
  );
}

/** Keys in work, and keys whose last sync failed. */
function work(app) {
  const entries = [...app.store.all("queue")].flatMap(([queue, { keys = {} }]) =>
    Object.entries(keys).map(([name, work]) => ({ queue, name, work })),
  );
  entries.sort(
    (a, b) =>
      (a.work.state === "inWork" ? 0 : 1) - (b.work.state === "inWork" ? 0 : 1) || millis(a.work.next ?? 0) - millis(b.work.next ?? 0),
  );
  const row = ({ queue, name, work }) => {
    const kind = app.store.get("service", name) ? "service" : "node";
    const level = work.error || work.failures ? "error" : "progressing";
    return h(
      "li",
      { key: `${queue}/${name}` },
      icon(level),
      h(
        "div",
        {},
        h(
          "p",
          {},
          h("strong", {}, link(app, kind, name)),
          h(
            "span",
            { class: "muted" },
            " ",
            joined(workState(work), nextTry(app, work), work.failures ? plural(work.failures, "failure") : "", user(queue)),
          ),
        ),
        work.error && h("p", { class: "error-text" }, long(work.error)),
      ),
    );
  };
  return panel(
    app,
    "work",
    "In work and back-offs",
    "backoffs",
    entries.length
      ? [
          h("ul", { class: "entries" }, entries.slice(0, 50).map(row)),
          entries.length > 50 && h("p", { class: "muted" }, `and ${count(entries.length - 50)} more`),
        ]
      : h("p", { class: "all-well" }, icon("ok", true), "No name is in work, and none waits for a retry."),
    { wide: true },
  );
}

function cloudCalls(app, name, cloud, index) {
  const calls = cloud.calls ?? {};
  return panel(
    app,
    `calls-${index}`,
    ["Calls to ", link(app, "cloud", name)],
    "calls",
    [callCharts(app, calls), callFacts(app, calls), h("p", {}, h("a", { href: to("calls", { cloud: name }) }, "The most recent calls"))],
    { wide: true },
  );
}

/** Charts of the calls to a cloud. */
export function callCharts(app, calls) {
  const time = app.now();
  const values = intervals(calls, time);
  const known = values.filter(([, value]) => value);
  const of = (field) => values.map(([time, value]) => [time, value?.[field] ?? 0]);
  return h(
    "div",
    { class: "charts" },
    chart({
      title: "Calls per 10 s",
      now: time,
      width: 10000,
      format: short,
      series: [{ name: "calls", tone: "a", shape: "bar", points: of("calls") }],
    }),
    chart({
      title: "Failures per 10 s",
      now: time,
      width: 10000,
      format: short,
      series: [
        { name: "failed", tone: "error", shape: "bar", points: of("failed") },
        { name: "throttled", tone: "warning", shape: "bar", points: of("throttled") },
      ],
    }),
    chart({
      title: "Latency",
      now: time,
      format: latency,
      series: [
        { name: "longest", tone: "b", shape: "line", points: known.map(([time, value]) => [time, value.maxMs]) },
        { name: "mean", tone: "a", shape: "line", points: known.map(([time, value]) => [time, value.meanMs]) },
      ],
    }),
  );
}

/** Rate limit, pause and budgets. */
export function callFacts(app, calls) {
  const budget = ([name, budget]) =>
    h(
      "li",
      { key: name },
      h("span", {}, user(name, 60), " "),
      h("progress", { max: budget.limit || 1, value: budget.remaining, "aria-label": `Calls that remain: ${cut60(name)}` }),
      h("span", { class: "muted" }, ` ${count(budget.remaining)} of ${count(budget.limit)}, reset ${until(budget.resets, app.now())}`),
    );
  const budgets = Object.entries(calls.budgets ?? {});
  return facts([
    ["In progress", count(calls.inProgress ?? 0)],
    ["Rate limit", calls.rateLimit ? `${short(calls.rateLimit)} calls per second` : "none"],
    [
      "Paused",
      calls.pausedUntil && millis(calls.pausedUntil) > app.now()
        ? `by the cloud's request, ends ${until(calls.pausedUntil, app.now())}`
        : undefined,
    ],
    ["Budget", budgets.length ? h("ul", { class: "plain" }, budgets.map(budget)) : undefined],
  ]);
}

const cut60 = (text) => visible(text).slice(0, 60);

function trafficPanel(app) {
  const balancers = app.store.all("loadBalancer");
  if (!balancers.size) return null;
  const time = app.now();
  return panel(
    app,
    "traffic",
    "Load balancer traffic",
    "traffic",
    h(
      "div",
      { class: "charts" },
      chart({
        title: "New connections per second",
        now: time,
        format: short,
        series: [{ name: "connections", tone: "a", shape: "area", points: app.history.get("connections/") }],
      }),
      chart({
        title: "Bytes per second",
        now: time,
        format: (value) => `${bytes(value)}/s`,
        series: [{ name: "bytes", tone: "b", shape: "area", points: app.history.get("bytes/") }],
      }),
    ),
    { wide: true },
  );
}
