// The part of the URL after `#`: a view, its filters, and the item whose details are open. Going back in the browser works.

export class Route {
  constructor(hash) {
    const [path, query = ""] = hash.replace(/^#/, "").split("?");
    this.view = path.replace(/^\//, "") || "overview";
    this.values = new URLSearchParams(query);
  }

  get(name) {
    return this.values.get(name) ?? "";
  }

  /** URL with these values changed; empty ones are removed. */
  with(values) {
    const next = new URLSearchParams(this.values);
    for (const [name, value] of Object.entries(values)) {
      if (value) next.set(name, value);
      else next.delete(name);
    }
    const query = next.toString();
    return `#/${this.view}${query && `?${query}`}`;
  }
}

/** URL of another view. */
export function to(view, values = {}) {
  const query = new URLSearchParams(values).toString();
  return `#/${view}${query && `?${query}`}`;
}
