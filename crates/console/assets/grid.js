// A list of any length: only the rows in sight are elements. The page scrolls, not the list, so that it works on a phone.

import { h } from "./dom.js";
import { LEVELS, LEVEL_NAMES, explain, icon, levelOf, levels, rankOf } from "./parts.js";
import { count, cut, plural } from "./format.js";

/** Rows above and below the visible ones, for smooth scrolling. */
const MARGIN = 8;
/** Maximum number of rows that are elements, however high the window is. */
const MOST = 120;

const collator = new Intl.Collator("en", { numeric: true });

/**
 * A list with search, filters and sorting.
 *
 * `columns`: `{ name, cell(row), sort(row), size, extra }`; the first one is the row's link. `extra` columns are hidden on a phone.
 * Rows: `{ name, item, href, text }`; `text` is what the search looks in, in lower case.
 */
export class Grid {
  constructor(app, { view, title, explain, columns, rows, version, hasLevels = true, defaultSort, none }) {
    Object.assign(this, { app, view, title, explain, columns, rows, version, hasLevels, none });
    this.defaultSort = defaultSort ?? (hasLevels ? "Health" : columns[0].name);
    this.active = 0;
    this.found = [];
  }

  /** The rows that the filters leave, in order. Computed only when the items or the filters have changed. */
  find() {
    const { route } = this.app;
    const key = [this.version(), route.get("q"), route.get("level"), route.get("cloud"), route.get("sort")].join("\n");
    if (key === this.key) return;
    this.key = key;
    const all = this.rows();
    const [query, level, cloud] = [route.get("q").toLowerCase().split(/\s+/).filter(Boolean), route.get("level"), route.get("cloud")];
    const matching = all.filter((row) => (!cloud || row.item.cloud === cloud) && query.every((word) => row.text.includes(word)));
    this.total = all.length;
    this.counts = levels(matching.map((row) => row.item));
    this.found = level ? matching.filter((row) => levelOf(row.item) === level) : matching;
    this.sort();
  }

  sort() {
    const { name, isDown } = this.order();
    const column = this.columns.find((column) => column.name === name) ?? this.columns[0];
    const value = column.sort ?? ((row) => row.name);
    const keyed = this.found.map((row) => [value(row), row]);
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : collator.compare(String(a ?? ""), String(b ?? "")));
    keyed.sort(([a, first], [b, second]) => (compare(a, b) || collator.compare(first.name, second.name)) * (isDown ? -1 : 1));
    this.found = keyed.map(([, row]) => row);
    this.active = Math.min(this.active, Math.max(0, this.found.length - 1));
  }

  order() {
    const sort = this.app.route.get("sort") || this.defaultSort;
    return sort.startsWith("-") ? { name: sort.slice(1), isDown: true } : { name: sort, isDown: false };
  }

  render() {
    this.find();
    return [
      h("div", { class: "view-head" }, h("h1", { tabindex: "-1" }, this.title), explain(this.app, this.explain)),
      this.filters(),
      this.found.length ? this.table() : h("p", { class: "empty" }, this.total ? "Nothing matches these filters." : this.none),
    ];
  }

  filters() {
    const { app } = this;
    const change = (values) => app.go(app.route.with(values), true);
    const clouds = [...app.store.all("cloud").keys()];
    const level = app.route.get("level");
    const hasClouds = clouds.length > 1 && this.rowsHaveClouds();
    return h(
      "div",
      { class: "filters", role: "search" },
      h("input", {
        type: "search",
        "aria-label": `Search ${this.title}`,
        placeholder: "Search",
        value: app.route.get("q"),
        maxlength: 200,
        autocomplete: "off",
        spellcheck: "false",
        oninput: (event) => change({ q: event.target.value }),
      }),
      hasClouds &&
        h(
          "select",
          { "aria-label": "Cloud", value: app.route.get("cloud"), onchange: (event) => change({ cloud: event.target.value }) },
          h("option", { value: "" }, "All clouds"),
          clouds.map((name) => h("option", { key: name, value: name }, cut(name, 60))),
        ),
      this.hasLevels &&
        h(
          "div",
          { class: "chips", role: "group", "aria-label": "Health" },
          LEVELS.filter((name) => this.counts[name] || name === level).map((name) =>
            h(
              "button",
              {
                key: name,
                type: "button",
                class: "chip",
                "aria-pressed": String(name === level),
                onclick: () => change({ level: name === level ? "" : name }),
              },
              icon(name, true),
              `${LEVEL_NAMES[name]} `,
              h("b", {}, count(this.counts[name])),
            ),
          ),
        ),
      h(
        "span",
        { class: "result", role: "status" },
        this.found.length === this.total ? plural(this.total, "entry", "entries") : `${count(this.found.length)} of ${count(this.total)}`,
      ),
    );
  }

  rowsHaveClouds() {
    return this.rows().some((row) => row.item.cloud);
  }

  table() {
    const { name, isDown } = this.order();
    const sorted = (column) => (column.name === name ? (isDown ? "descending" : "ascending") : undefined);
    const height = this.rowHeight();
    const [first, last] = this.visible(height);
    const shown = this.found.slice(first, last);
    // The active row stays an element, so that it keeps the focus.
    const active = this.found[this.active];
    const rows = shown.map((row, index) => this.row(row, first + index, height));
    if (active && (this.active < first || this.active >= last)) rows.push(this.row(active, this.active, height));
    return h(
      "div",
      {
        class: `grid grid-${this.view}`,
        role: "grid",
        "aria-label": this.title,
        "aria-rowcount": this.found.length + 1,
        "aria-colcount": this.columns.length,
      },
      h(
        "div",
        { role: "rowgroup", class: "grid-head" },
        h(
          "div",
          { role: "row", "aria-rowindex": 1 },
          this.columns.map((column) =>
            h(
              "div",
              { key: column.name, role: "columnheader", class: cellClass(column), "aria-sort": sorted(column) ?? "none" },
              this.sortButton(column, sorted(column)),
            ),
          ),
        ),
      ),
      h(
        "div",
        {
          role: "rowgroup",
          class: "grid-body",
          ref: (element) => (this.body = element),
          css: { height: `${this.found.length * height}px` },
          onkeydown: (event) => this.move(event),
        },
        rows,
      ),
    );
  }

  sortButton(column, sorted) {
    const next = sorted === "ascending" ? `-${column.name}` : column.name;
    const mark = { ascending: "▲", descending: "▼" }[sorted];
    return h(
      "button",
      { type: "button", onclick: () => this.app.go(this.app.route.with({ sort: next }), true) },
      column.name,
      mark && h("span", { class: "sort", "aria-hidden": "true" }, mark),
    );
  }

  row(row, index, height) {
    const { app } = this;
    const isSelected = app.route.get("item") === row.key;
    const focus = () => {
      this.active = index;
    };
    const props = { href: row.href, class: "row-link", tabindex: index === this.active ? "0" : "-1", onfocus: focus, "data-index": index };
    const cell = (column, position) =>
      h("div", { role: "gridcell", class: cellClass(column) }, position === 0 ? h("a", props, column.cell(row)) : column.cell(row));
    return h(
      "div",
      {
        key: row.key,
        role: "row",
        class: `row level-row-${levelOf(row.item)}`,
        "aria-rowindex": index + 2,
        "aria-selected": isSelected ? "true" : undefined,
        css: { transform: `translateY(${index * height}px)` },
        // A click anywhere in the row opens it; links and selected text keep their meaning.
        onclick: (event) => event.target.closest("a, button") || String(getSelection()) || app.go(row.href),
      },
      this.columns.map(cell),
    );
  }

  rowHeight() {
    return matchMedia("(max-width: 720px)").matches ? 58 : 36;
  }

  visible(height) {
    const top = this.body?.isConnected ? -this.body.getBoundingClientRect().top : 0;
    const first = Math.max(0, Math.min(Math.floor(top / height), this.found.length - 1) - MARGIN);
    return [first, Math.min(this.found.length, first + Math.min(MOST, Math.ceil(innerHeight / height) + 2 * MARGIN))];
  }

  /** Moves the focus between rows with the keyboard. */
  move(event) {
    const page = Math.max(1, Math.floor(innerHeight / this.rowHeight()) - 4);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    this.active = Math.max(0, Math.min(this.found.length - 1, this.active + steps[event.key]));
    this.app.draw();
    const link = this.body?.querySelector(`[data-index="${this.active}"]`);
    link?.focus({ preventScroll: true });
    link?.closest(".row").scrollIntoView({ block: "nearest" });
  }
}

const cellClass = (column) => `cell${column.size ? ` ${column.size}` : ""}${column.extra ? " extra" : ""}`;

/** Column with the health of a row. */
export const byHealth = (row) => rankOf(levelOf(row.item));
