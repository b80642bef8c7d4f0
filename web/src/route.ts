// Where the page is, as the part of its address behind `#`. That is all of its state that a link
// shares. A step to another place is a step of the browser's history; what only changes a view
// (a slider, a zoom) takes the place of the step before.

import { decode, encode } from "./text";

export type Params = { [name: string]: string };
export interface Route {
  /** A pool's id, `compare`, or nothing: the list of pools. */
  pool: string;
  path: string;
  params: Params;
}

export function parse(hash: string): Route {
  const text = hash.replace(/^#?\/?/, "");
  const mark = text.indexOf("?");
  const place = mark < 0 ? text : text.slice(0, mark);
  const slash = place.indexOf("/");
  const params: Params = {};
  for (const pair of mark < 0 ? [] : text.slice(mark + 1).split("&")) {
    const equal = pair.indexOf("=");
    if (equal > 0) params[decode(pair.slice(0, equal))] = decode(pair.slice(equal + 1));
  }
  return {
    pool: decode(slash < 0 ? place : place.slice(0, slash)),
    path:
      slash < 0
        ? ""
        : place
            .slice(slash + 1)
            .split("/")
            .map(decode)
            .join("/"),
    params,
  };
}

/** An address of a place: what `parse` reads. Commas and colons of an index stay legible. */
export function link(pool: string, path = "", params: Params = {}): string {
  const pairs = Object.entries(params)
    .filter(([, value]) => value !== "")
    .map(
      ([key, value]) => `${encode(key)}=${encode(value).replace(/%2C/g, ",").replace(/%3A/g, ":")}`,
    );
  const place =
    pool === ""
      ? "#/"
      : pool === "compare"
        ? "#/compare"
        : `#/${encode(pool)}/${path.split("/").map(encode).join("/")}`;
  return pairs.length ? `${place}?${pairs.join("&")}` : place;
}

export const here = (): Route => parse(location.hash);

const listeners = new Set<(route: Route) => void>();
export function watch(call: (route: Route) => void): void {
  listeners.add(call);
}
function moved(): void {
  const route = here();
  for (const call of listeners) call(route);
}
window.addEventListener("popstate", moved);

/** Goes there: a step of the history. */
export function go(to: string): void {
  if (to === location.hash) return;
  history.pushState(null, "", to);
  moved();
}

/** Says what is seen, without a step. Browsers bound how often: the last one counts. */
let waiting: number | undefined;
export function adjust(to: string): void {
  window.clearTimeout(waiting);
  waiting = window.setTimeout(() => history.replaceState(null, "", to), 120);
}

/** Cancels what `adjust` has yet to write: another place is being gone to. */
watch(() => window.clearTimeout(waiting));
