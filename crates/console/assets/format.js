// Texts for times, sizes, counts and names.

/** A table without the names that all objects inherit, so that a name of the document never finds one of them. */
export const table = (rows) => Object.assign(Object.create(null), rows);

/** Characters that change the direction or the meaning of the text around them, or that are invisible. */
const INVISIBLE =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]/g;

/** Shows invisible characters as their code, so that a name is what it seems to be. */
export function visible(text) {
  return String(text ?? "").replace(INVISIBLE, (character) => `⟨${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** At most this number of characters. */
export function cut(text, length) {
  const shown = visible(text);
  return shown.length > length ? `${shown.slice(0, length - 1)}…` : shown;
}

const NUMBER = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (number) => NUMBER.format(number);
export const short = (number) => (number < 10000 ? NUMBER.format(Math.round(number * 10) / 10) : SHORT.format(number));
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** A duration in milliseconds, such as `45 s` or `2 h 5 min`. */
export function duration(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 10) return `${minutes} min ${seconds % 60} s`;
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Time of a call, such as `35 ms`. */
export const latency = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

export function bytes(number) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (number >= 1000 && unit < units.length - 1) {
    number /= 1000;
    unit += 1;
  }
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

export const millis = (timestamp) => Date.parse(timestamp);
export const clock = (ms) => CLOCK.format(new Date(ms));
/** Age of a timestamp of the manager. */
export const ago = (timestamp, now) => `${duration(now - millis(timestamp))} ago`;
/** Time until a timestamp of the manager. */
export function until(timestamp, now) {
  const left = millis(timestamp) - now;
  return left <= 500 ? "now" : `in ${duration(left)}`;
}

/** `serviceLb` as `service lb`, `NodePort` as it is. */
export const words = (name) => cut(name, 60).replace(/([a-z])([A-Z])/g, (_, a, b) => `${a} ${b.toLowerCase()}`);
