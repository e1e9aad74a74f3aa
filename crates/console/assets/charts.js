// Small charts as inline SVG, and the history of values of which the document has only the current one.

import { h } from "./dom.js";
import { clock, duration } from "./format.js";

const WIDTH = 300;
const HEIGHT = 56;
/** Time that charts show. */
export const SPAN = 10 * 60 * 1000;

/** The time that the values cover, at least a minute. */
function known(series, now) {
  const first = Math.min(...series.map((each) => each.points[0]?.[0] ?? now));
  return Math.max(60000, Math.min(SPAN, now - first));
}

/**
 * A chart of series over the last minutes.
 *
 * `series`: `{ name, tone, shape: "area" | "line" | "bar", points: [[time, value]] }`, drawn in this order.
 */
export function chart({ title, series, now, format, width = 1000, span = known(series, now) }) {
  const from = now - span;
  const top = Math.max(1e-9, ...series.flatMap((each) => each.points.filter(([time]) => time >= from).map(([, value]) => value)));
  const x = (time) => ((time - from) / span) * WIDTH;
  const y = (value) => HEIGHT - (value / top) * (HEIGHT - 4);
  const latest = (points) => points.at(-1)?.[1];
  const summary = series
    .map((each) => `${each.name} ${latest(each.points) === undefined ? "none" : format(latest(each.points))}`)
    .join(", ");
  const isEmpty = series.every((each) => each.points.length === 0);
  return h(
    "figure",
    { class: "chart" },
    h(
      "figcaption",
      {},
      h("span", { class: "chart-title" }, title),
      h("span", { class: "chart-top" }, isEmpty ? "" : `max ${format(top > 1e-8 ? top : 0)}`),
    ),
    h(
      "svg",
      {
        viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": `${title}, last ${duration(span)}: ${summary}`,
      },
      h("path", { class: "axis", d: `M0 ${HEIGHT - 0.5}H${WIDTH}M0 ${HEIGHT / 2}H${WIDTH}` }),
      series.map((each) =>
        h("path", { key: each.name, class: `series ${each.shape} tone-${each.tone}`, d: path(each, x, y, from, width) }),
      ),
    ),
    h(
      "div",
      { class: "chart-legend" },
      h("span", {}, span < SPAN / 2 ? clock(from) : clock(from).slice(0, 5)),
      h(
        "span",
        { class: "legend" },
        series.map((each) =>
          h(
            "span",
            { key: each.name, class: `legend-${each.shape} tone-${each.tone}` },
            h("i", { "aria-hidden": "true" }),
            each.name,
            " ",
            h("b", {}, latest(each.points) === undefined ? "–" : format(latest(each.points))),
          ),
        ),
      ),
      h("span", {}, "now"),
    ),
  );
}

function path(series, x, y, from, width) {
  const points = series.points.filter(([time]) => time >= from - width);
  const number = (value) => Math.round(value * 10) / 10;
  if (series.shape === "bar") {
    const bar = ([time, value]) =>
      value ? `M${number(x(time))} ${HEIGHT}V${number(y(value))}H${number(x(time + width * 0.85))}V${HEIGHT}Z` : "";
    return points.map(bar).join("");
  }
  if (points.length === 0) return "";
  const line = points.map(([time, value], index) => `${index ? "L" : "M"}${number(x(time))} ${number(y(value))}`).join("");
  return series.shape === "area" ? `${line}L${number(x(points.at(-1)[0]))} ${HEIGHT}L${number(x(points[0][0]))} ${HEIGHT}Z` : line;
}

/** Intervals of calls, with zeros for intervals without a call. Those of the manager begin at any second, but ten seconds apart. */
export function intervals(calls, now) {
  const step = 10000;
  const slot = (time) => Math.floor(time / step) * step;
  const known = new Map((calls?.intervals ?? []).map((interval) => [slot(interval.at * 1000), interval]));
  const last = slot(now);
  const points = [];
  for (let time = last - SPAN; time <= last; time += step) points.push([time, known.get(time)]);
  return points;
}

/** Values of the last minutes, as this page has seen them. */
export class History {
  constructor() {
    this.clear();
  }

  clear() {
    this.values = new Map();
    this.counters = new Map();
  }

  /** Adds the current value of everything that charts show. */
  record(store, now) {
    for (const [name, queue] of store.all("queue")) {
      this.add(`waiting/${name}`, now, queue.waiting + queue.inWork);
      this.add(`delayed/${name}`, now, queue.delayed);
    }
    let [connections, bytes] = [0, 0];
    for (const [name, balancer] of store.all("loadBalancer")) {
      connections += balancer.connections;
      bytes += balancer.bytes;
      if (store.all("loadBalancer").size <= 200) this.rates(name, now, balancer.connections, balancer.bytes);
    }
    this.rates("", now, connections, bytes);
  }

  rates(name, now, connections, bytes) {
    this.rate(`connections/${name}`, now, connections);
    this.rate(`bytes/${name}`, now, bytes);
  }

  /** Increase of a counter per second. A counter that has decreased belongs to a new load balancer. */
  rate(key, now, value) {
    const before = this.counters.get(key);
    if (before && now - before.time < 500) return;
    this.counters.set(key, { time: now, value });
    if (before) this.add(key, now, (Math.max(0, value - before.value) * 1000) / (now - before.time));
  }

  add(key, now, value) {
    let values = this.values.get(key);
    if (!values) this.values.set(key, (values = []));
    values.push([now, value]);
    while (values.length && values[0][0] < now - SPAN) values.shift();
  }

  get(key) {
    return this.values.get(key) ?? [];
  }
}
