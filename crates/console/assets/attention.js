// What an operator should see first: everything that is not as desired, with the reason, the next try and what to do.

import { h } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { KINDS, LEVEL_NAMES, command, describe, explain, icon, levelOf, link, mainWork, nextTry, rankOf, user } from "./parts.js";
import { to } from "./route.js";

const WATCHED = ["manager", "cloud", "service", "loadBalancer", "node", "route", "controller", "queue", "watch"];
/** Work that takes longer needs attention. */
const LONG = 30000;
/** Items with the same reason that are shown one by one; of more, only the first one is. */
const ALIKE = 3;

/** Everything that needs attention, worst first, in groups of items of one kind with the same level and reason. */
export function findings(app) {
  const groups = new Map();
  for (const kind of WATCHED) {
    for (const [name, item] of app.store.all(kind)) {
      const level = levelOf(item);
      if (level === "ok" && !item.held) continue;
      if (level === "progressing" && app.now() - since(app, kind, name, item) < LONG) continue;
      const key = `${kind}\n${level}\n${item.held?.reason ?? item.health?.reason}`;
      const group = groups.get(key) ?? { key, kind, level: item.held && level === "ok" ? "warning" : level, items: [] };
      group.items.push([name, item]);
      groups.set(key, group);
    }
  }
  return [...groups.values()].sort((a, b) => rankOf(a.level) - rankOf(b.level) || WATCHED.indexOf(a.kind) - WATCHED.indexOf(b.kind));
}

/** Since when the item has its level, as far as it is known. */
export function since(app, kind, name, item) {
  const seen = app.store.levelSince(kind, name) ?? app.now();
  const started = mainWork(item)?.since ?? (item.addresses?.length ? undefined : item.created);
  return Math.min(seen, started ? Date.parse(started) : Infinity);
}

export function attention(app) {
  const groups = findings(app);
  const total = groups.reduce((sum, group) => sum + group.items.length, 0);
  return h(
    "section",
    { class: "panel attention", "aria-labelledby": "attention" },
    h(
      "div",
      { class: "heading" },
      h("h2", { id: "attention" }, "Needs attention"),
      explain(app, "attention"),
      total ? h("span", { class: "badge" }, count(total)) : null,
    ),
    total
      ? h(
          "ul",
          { class: "findings" },
          groups.map((group) => entries(app, group)),
        )
      : h("p", { class: "all-well" }, icon("ok", true), "Everything is as desired."),
  );
}

function entries(app, group) {
  const { kind, level, items } = group;
  const shown = items.length > ALIKE ? items.slice(0, 1) : items;
  const rest = items.length - shown.length;
  const reason = items[0][1].health?.reason ?? "";
  const more = () =>
    h(
      "li",
      { key: `${group.key}/more`, class: "finding more-like-it" },
      icon(level),
      h(
        "a",
        { href: to(KINDS[kind].view, { level }) },
        `${plural(rest, `more ${KINDS[kind].one}`, `more ${KINDS[kind].many}`)}: `,
        user(reason, 60),
      ),
    );
  return [...shown.map(([name, item]) => entry(app, group, name, item)), rest > 0 ? more() : null];
}

function entry(app, { kind, level }, name, item) {
  const work = mainWork(item);
  const message = item.held?.message || item.health?.message || work?.error || `${LEVEL_NAMES[level]}: ${item.health?.reason ?? ""}`;
  const remedy = item.held?.command ?? describe(kind, name);
  const seen = since(app, kind, name, item);
  return h(
    "li",
    { key: `${kind}/${name}`, class: `finding finding-${level}` },
    icon(level),
    h(
      "div",
      { class: "finding-body" },
      h(
        "p",
        { class: "finding-title" },
        h("span", { class: "kind" }, `${KINDS[kind].one} `),
        h("strong", {}, link(app, kind, name)),
        // The name of a load balancer says little.
        item.service ? h("span", {}, " for Service ", link(app, "service", item.service)) : null,
        " ",
        h("span", { class: `reason-tag tag-${level}` }, user(item.held?.reason ?? item.health?.reason ?? LEVEL_NAMES[level], 60)),
      ),
      h("p", { class: "finding-text" }, user(message, 600)),
      h(
        "p",
        { class: "finding-meta" },
        h("span", {}, `for ${duration(app.now() - seen)}`),
        work?.failures ? h("span", {}, plural(work.failures, "failure"), " in a row") : null,
        nextTry(app, work) && h("span", {}, nextTry(app, work)),
      ),
      remedy && command(app, remedy),
    ),
  );
}
