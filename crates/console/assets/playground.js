// What only the playground has: the tour, and actions on machines, faults and examples.

import { h } from "./dom.js";
import { count, cut, table } from "./format.js";
import { code, command, explain, icon, joined, levelOf, link, long, user } from "./parts.js";
import { to } from "./route.js";

const STATES = table({
  todo: ["unknown", "to do"],
  waiting: ["progressing", "waits for you"],
  running: ["progressing", "running"],
  passed: ["ok", "passed"],
  failed: ["error", "failed"],
});

export function playground(app) {
  const steps = [...app.store.all("step")].sort(([a], [b]) => (a < b ? -1 : 1));
  return [
    h("div", { class: "view-head" }, h("h1", { tabindex: "-1" }, "Playground")),
    h(
      "div",
      { class: "panels" },
      steps.length ? tour(app, steps) : null,
      app.canAct() ? [machines(app), h("div", { class: "stack" }, faults(app), examples(app))] : faults(app),
    ),
  ];
}

/** The step of the tour that is in progress, as a link to all steps. */
export function tourStrip(app) {
  const steps = [...app.store.all("step")].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, step]) => step);
  const index = steps.findIndex((step) => step.state !== "passed");
  if (index < 0) return null;
  const { title, state, checks = [] } = steps[index];
  const [level, text] = STATES[state] ?? ["unknown", state];
  return h(
    "a",
    { class: "panel strip", href: to("playground") },
    icon(state === "todo" ? "progressing" : level),
    h("strong", {}, `Tour, step ${count(index + 1)} of ${count(steps.length)}: `, user(title)),
    h(
      "span",
      { class: "muted" },
      joined(
        user(text, 40),
        checks.length ? `${count(checks.filter(([, isTrue]) => isTrue).length)} of ${count(checks.length)} checks` : "",
      ),
    ),
  );
}

function tour(app, steps) {
  const passed = steps.filter(([, step]) => step.state === "passed").length;
  const current = steps.find(([, step]) => step.state === "running" || step.state === "waiting" || step.state === "failed");
  return h(
    "section",
    { key: "tour", class: "panel wide", "aria-labelledby": "tour" },
    h(
      "div",
      { class: "heading" },
      h("h2", { id: "tour" }, "Tour"),
      explain(app, "tour"),
      h("span", { class: "muted" }, `${count(passed)} of ${count(steps.length)} steps passed`),
    ),
    h("progress", { class: "tour-progress", max: steps.length, value: passed, "aria-label": "Steps passed" }),
    h(
      "ol",
      { class: "tour" },
      steps.map(([number, step]) => tourStep(app, number, step, current?.[0] === number)),
    ),
  );
}

function tourStep(app, number, step, isCurrent) {
  const [level, text] = STATES[step.state] ?? ["unknown", step.state];
  const checks = (step.checks ?? []).map(([name, isTrue], index) =>
    h(
      "li",
      { key: index, class: isTrue ? "done" : "open" },
      h("span", { class: "step-mark", "aria-hidden": "true" }, isTrue ? "✓" : "○"),
      h("span", {}, user(name, 300), h("span", { class: "sr" }, isTrue ? " (true)" : " (not yet)")),
    ),
  );
  const commands = (title, texts) =>
    texts?.length ? [h("p", { class: "muted" }, title), texts.map((text, index) => h("div", { key: index }, command(app, text)))] : null;
  const body = [
    step.text && h("p", {}, long(step.text)),
    commands("It runs:", step.commands),
    commands("See for yourself:", step.views),
    checks.length ? h("ul", { class: "checks" }, checks) : null,
    step.result && h("p", {}, long(step.result)),
  ];
  return h(
    "li",
    { key: number, class: `tour-step tour-${level}`, "aria-current": isCurrent ? "step" : undefined },
    step.state === "todo" ? h("span", { class: "step-mark", "aria-hidden": "true" }, "○") : icon(level),
    h(
      "div",
      {},
      h("h3", {}, user(step.title), h("span", { class: "muted" }, " · ", user(text, 40))),
      isCurrent
        ? body
        : h(
            "details",
            {},
            h(
              "summary",
              {},
              checks.length ? `${count(step.checks.filter(([, isTrue]) => isTrue).length)} of ${count(checks.length)} checks` : "Text",
            ),
            body,
          ),
    ),
  );
}

/** Buttons of a machine. */
export function machineActions(app, name, machine) {
  if (!app.canAct()) return null;
  const isRunning = machine.state === "running";
  const remove = () =>
    app.confirm(
      `Delete the machine ${cut(machine.id, 80)}?`,
      "The cloud forgets the machine for good, as if it had failed. The cloud-node-lifecycle-controller then deletes its Node.",
      "Delete the machine",
      () => app.act("deleteMachine", machine.id),
    );
  return h(
    "div",
    { class: "buttons", key: `buttons/${name}` },
    button(app, isRunning ? "Stop" : "Start", isRunning ? "stopMachine" : "startMachine", machine.id),
    h(
      "button",
      { type: "button", class: "danger", disabled: app.busy, "aria-label": `Delete the machine ${cut(machine.id, 80)}`, onclick: remove },
      "Delete",
    ),
  );
}

function button(app, text, action, target) {
  return h(
    "button",
    { type: "button", disabled: app.busy, "aria-label": `${text} ${cut(target, 80)}`, onclick: () => app.act(action, target) },
    text,
  );
}

function machines(app) {
  const all = [...app.store.all("machine")];
  const row = ([name, machine]) =>
    h(
      "li",
      { key: name, class: "action-row" },
      icon(levelOf(machine)),
      h(
        "div",
        {},
        h(
          "p",
          {},
          link(app, "machine", name, machine.id),
          h("span", { class: "muted" }, " ", joined(user(machine.state), machine.node && link(app, "node", machine.node))),
        ),
      ),
      machineActions(app, name, machine),
    );
  return h(
    "section",
    { key: "machines", class: "panel", "aria-labelledby": "actions-machines" },
    h("div", { class: "heading" }, h("h2", { id: "actions-machines" }, "Machines"), explain(app, "machines")),
    all.length ? h("ul", { class: "entries" }, all.slice(0, 50).map(row)) : h("p", { class: "empty" }, "The cloud has no machines."),
  );
}

function faults(app) {
  const all = [...app.store.all("fault")];
  if (!all.length) return null;
  const row = ([name, fault]) =>
    h(
      "li",
      { key: name, class: "action-row" },
      icon(fault.on ? "warning" : "ok"),
      h(
        "div",
        {},
        h("p", {}, h("strong", {}, user(name)), h("span", { class: "muted" }, fault.on ? " · on" : " · off")),
        h("p", {}, long(fault.text)),
      ),
      app.canAct() &&
        h(
          "button",
          {
            type: "button",
            role: "switch",
            class: "switch",
            "aria-checked": String(fault.on),
            "aria-label": `Fault ${cut(name, 80)}`,
            disabled: app.busy,
            onclick: () => app.act(fault.on ? "stopFault" : "startFault", name),
          },
          h("span", { "aria-hidden": "true" }),
        ),
    );
  return h(
    "section",
    { key: "faults", class: "panel", "aria-labelledby": "actions-faults" },
    h("div", { class: "heading" }, h("h2", { id: "actions-faults" }, "Faults of the cloud"), explain(app, "faults")),
    h("ul", { class: "entries" }, all.map(row)),
  );
}

function examples(app) {
  const names = app.feed.session?.examples ?? [];
  if (!names.length) return null;
  const remove = (name) =>
    app.confirm(
      `Delete the example ${cut(name, 80)}?`,
      "Its objects are deleted from the cluster. The service-lb-controller then deletes the load balancers of its Services.",
      "Delete the example",
      () => app.act("deleteExample", name),
    );
  const row = (name) =>
    h(
      "li",
      { key: name, class: "action-row" },
      h("div", {}, h("p", {}, h("strong", {}, code(name)))),
      h(
        "div",
        { class: "buttons" },
        button(app, "Create", "createExample", name),
        h(
          "button",
          {
            type: "button",
            class: "danger",
            disabled: app.busy,
            "aria-label": `Delete the example ${cut(name, 80)}`,
            onclick: () => remove(name),
          },
          "Delete",
        ),
      ),
    );
  return h(
    "section",
    { key: "examples", class: "panel", "aria-labelledby": "actions-examples" },
    h("div", { class: "heading" }, h("h2", { id: "actions-examples" }, "Examples"), explain(app, "examples")),
    h("ul", { class: "entries" }, names.map(row)),
  );
}
