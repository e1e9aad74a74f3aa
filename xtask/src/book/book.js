// Search over all pages, without a server. INDEX has an entry [link, page, heading, text] for each section. The functions need no
// page, so that the tests can call them.
"use strict";

const LIMIT = 20;

// Weight of a match by its field, and of pages: guides come before references, and both before notes for developers.
const FIELDS = { heading: 8, page: 4, text: 1 };
const KINDS = [[/^docs\/(guides|explanation|tutorials)\//, 2], [/^docs\/reference\//, 1.4], [/^(CHANGELOG|docs\/adr|crates|providers|tests)/, 0.6]];

// Words of a text in lower case. Names such as `--cluster-cidr` are found by their parts and, like "back-off", as one word.
function words(text) {
  const lower = text.toLowerCase();
  const joined = (lower.match(/[\p{L}\p{N}]+(?:-[\p{L}\p{N}]+)+/gu) || []).map((word) => word.replaceAll("-", ""));
  return (lower.match(/[\p{L}\p{N}]+/gu) || []).concat(joined);
}

// Words of a query; a plural is found by its singular.
function terms(text) {
  return (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) || []).map((word) => word.length > 4 ? word.replace(/(?<!s)s$/, "") : word);
}

function prepare(entry) {
  const [link, page, heading, text] = entry;
  const fields = Object.entries({ heading, page, text }).map(([name, field]) => [" " + words(field).join(" "), FIELDS[name]]);
  const kind = KINDS.find(([pattern]) => pattern.test(link));
  return { entry, fields, weight: kind ? kind[1] : 1 };
}

// Score of a section. A word matches at the beginning of words; headings count more than text, the query as a phrase more than its
// words, and a section without one of the words much less.
function score(query, { fields, weight }) {
  let [sum, matched] = [0, 0];
  for (const word of query) {
    const counts = fields.map(([field]) => field.split(" " + word).length - 1);
    if (counts.some((count) => count > 0)) matched += 1;
    fields.forEach(([, points], index) => { sum += points * Math.log2(1 + Math.min(counts[index], 8)); });
  }
  const phrase = " " + query.join(" ");
  for (const [field, points] of fields) if (query.length > 1 && field.includes(phrase)) sum += 3 * points;
  return 2 * matched < query.length ? 0 : sum * weight * (matched / query.length) ** 3;
}

let prepared;

function search(text, index) {
  const query = terms(text);
  if (query.length === 0) return [];
  prepared ||= index.map(prepare);
  const scored = prepared.map((section) => [score(query, section), section.entry]).filter(([points]) => points > 0);
  return scored.sort((a, b) => b[0] - a[0]).slice(0, LIMIT).map(([, entry]) => entry);
}

// The text around the first word of the query.
function excerpt(text, query) {
  const at = Math.max(0, text.toLowerCase().indexOf(terms(query)[0]) - 40);
  return (at > 0 ? "…" : "") + text.slice(at, at + 140) + (text.length > at + 140 ? "…" : "");
}

function show(results, query, list, root) {
  list.replaceChildren(...results.map(([link, page, heading, text]) => {
    const item = document.createElement("li");
    const anchor = document.createElement("a");
    anchor.href = root + link;
    anchor.textContent = heading && heading !== page ? `${page}: ${heading}` : page;
    const part = document.createElement("p");
    part.textContent = excerpt(text, query);
    item.append(anchor, part);
    return item;
  }));
  if (results.length === 0 && terms(query).length > 0) list.textContent = "No section has these words.";
}

if (typeof document !== "undefined") {
  const [field, list] = ["query", "results"].map((id) => document.getElementById(id));
  field.addEventListener("input", () => show(search(field.value, INDEX), field.value, list, document.body.dataset.root));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== field) {
      event.preventDefault();
      field.focus();
    } else if (event.key === "Escape") {
      field.value = "";
      list.replaceChildren();
    }
  });
  document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "center" });
}
