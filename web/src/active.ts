// Active objects: their classes, and which of them refer to which.

import { ofPool } from "./api";
import { h } from "./dom";
import { type Drawn, draw } from "./drawing";
import { records } from "./records";
import { link } from "./route";
import { bytes, count, lines, shown, value } from "./text";

interface Class {
  name: string;
  version: unknown;
  stored: string;
  owner: unknown;
  fields: { [field: string]: string };
  methods: string[];
  source: string;
}
interface ActiveObject {
  id: string;
  path?: string;
  class: string;
  aliases?: string[];
  refs: string[];
  bytes?: number;
  why?: string;
}
interface Active {
  classes: Class[];
  objects: ActiveObject[];
  cut?: boolean;
}

/** More boxes than these are no picture. */
const DRAWN = 120;

export async function active(pool: string, signal: AbortSignal): Promise<HTMLElement> {
  const { classes, objects, cut } = await ofPool<Active>(pool, "active", {}, signal);
  const names = new Map(objects.map((one) => [one.path, nameOf(one)]));
  const to = (path: string) =>
    h("a", { href: link(pool, path) }, h("bdi", {}, names.get(path) ?? shown(path)));
  return h(
    "div",
    {},
    h("h2", {}, "References"),
    references(pool, objects),
    h("h2", {}, "Objects"),
    records(
      "Active objects",
      objects,
      [
        { head: "Object", cell: (one) => (one.path ? to(one.path) : one.id) },
        { head: "Class", cell: (one) => shown(one.why ?? one.class) },
        {
          head: "Size",
          cell: (one) => (one.bytes === undefined ? "" : bytes(one.bytes)),
          figure: true,
        },
        {
          head: "Refers to",
          cell: (one) =>
            h("ul", { class: "keys" }, ...one.refs.map((path) => h("li", {}, to(path)))),
        },
      ],
      "This pool has no active objects.",
    ),
    cut ? h("p", { class: "hint" }, `The first ${count(objects.length)} are shown.`) : "",
    h("h2", {}, "Classes"),
    records(
      "Classes",
      classes,
      [
        { head: "Class", cell: (one) => h("strong", {}, shown(one.name)) },
        { head: "Version", cell: (one) => value(one.version), figure: true },
        { head: "Fields", cell: (one) => fields(one) },
        { head: "Methods", cell: (one) => shown(one.methods.join(", ")) },
        { head: "Owner", cell: (one) => value(one.owner) },
        { head: "Stored", cell: (one) => one.stored },
        { head: "Source", cell: source },
      ],
      "This pool has no classes.",
    ),
  );
}

/** An object's first alias; else its class, and its id without the prefix that all share. */
function nameOf(one: ActiveObject): string {
  const kind = one.class.split(".").pop()!.replace(/@.*/, "");
  return shown(one.aliases?.[0] ?? `${kind} ${one.id.replace(/^.*?00+/, "")}`);
}

function fields(one: Class): string {
  return shown(
    Object.entries(one.fields)
      .map(([field, kind]) => `${field}: ${kind}`)
      .join(", "),
  );
}

function source(one: Class): HTMLElement | string {
  if (!one.source) return "";
  const text = h("pre", { class: "text", tabindex: 0 }, lines(one.source));
  return h("details", {}, h("summary", {}, "Show"), text);
}

function references(pool: string, objects: ActiveObject[]): HTMLElement {
  const linked = new Set(
    objects.flatMap(({ path, refs }) => (path && refs.length ? [path, ...refs] : [])),
  );
  if (linked.size === 0) return h("p", { class: "empty" }, "No active object refers to another.");
  const chosen = [...linked].slice(0, DRAWN);
  const known = new Map(objects.map((one) => [one.path, one]));
  const box = (path: string) => {
    const one = known.get(path);
    const lines = one ? [nameOf(one), shown(one.class)] : [shown(path)];
    return { id: path, lines, href: link(pool, path) };
  };
  const drawn: Drawn = {
    boxes: chosen.map(box),
    arrows: objects.flatMap(({ path, refs }) =>
      path ? refs.map((to): [string, string] => [path, to]) : [],
    ),
  };
  const beyond = `${DRAWN} of ${count(linked.size)} are drawn; all are listed below.`;
  return h(
    "div",
    {},
    draw(drawn, "References of active objects"),
    linked.size > DRAWN ? h("p", { class: "hint" }, beyond) : "",
  );
}
