// The index: groups of objects with the same keys, how often each key occurs, and their splits.

import { ofPool } from "./api";
import { h, s } from "./dom";
import { records } from "./records";
import { link } from "./route";
import { bytes, count, number, shown, value } from "./text";

interface Group {
  gid: string;
  path?: string | null;
  kind: string;
  keys: string[];
  /** How many of the group's objects have each key. */
  frequencies: { [key: string]: number };
  /** The sharing frequency: which part of its keys an object of the group has. */
  sf: number;
  objects: number;
  segments: number;
  bytes: number;
  splits: number;
  bounds: unknown[];
}
interface Key {
  key: string;
  objects: number;
  kind: string;
}
interface Index {
  groups: Group[];
  keys: Key[];
  bytes: number;
  tail: number;
}

export async function groups(pool: string, signal: AbortSignal): Promise<HTMLElement> {
  const index = await ofPool<Index>(pool, "index", {}, signal);
  const most = Math.max(1, ...index.keys.map((key) => key.objects));
  return h(
    "div",
    {},
    h(
      "p",
      { class: "lead" },
      `The index has ${count(index.groups.length)} groups of objects with like keys and takes `,
      `${bytes(index.bytes)}. ${count(index.tail)} objects are in its tail and not sorted in yet.`,
    ),
    h("h2", {}, "Keys, and how many objects have each"),
    records(
      "Keys",
      index.keys,
      [
        { head: "Key", cell: (key) => keyLink(pool, key) },
        { head: "Kind", cell: (key) => key.kind },
        { head: "Objects", cell: (key) => count(key.objects), figure: true },
        { head: "Share", cell: (key) => share(key.objects / most) },
      ],
      "The index has no keys yet: attributes of new objects are in its tail.",
    ),
    h("h2", {}, "Groups of the index"),
    records(
      "Groups of the index",
      index.groups,
      [
        { head: "Group", cell: (group) => shown(group.path || group.gid) },
        { head: "Keys and objects that have them", cell: frequencies },
        { head: "Sharing frequency", cell: (group) => number(group.sf, 3), figure: true },
        { head: "Objects", cell: (group) => count(group.objects), figure: true },
        { head: "Segments", cell: (group) => count(group.segments), figure: true },
        { head: "Bytes", cell: (group) => bytes(group.bytes), figure: true },
        { head: "Splits", cell: splits },
      ],
      "The index has no groups yet.",
    ),
  );
}

function keyLink(pool: string, { key }: Key): HTMLElement {
  const name = h("bdi", {}, shown(key));
  if (key.startsWith("@")) return name; // every object has it
  const quoted = /^[A-Za-z_]\w*$/.test(key) ? key : `\`${key.replaceAll("`", "``")}\``;
  return h("a", { href: link(pool, "", { query: `exists(${quoted})` }) }, name);
}

function list(items: (HTMLElement | string)[]): HTMLElement {
  const seen = items.slice(0, 20);
  if (items.length > seen.length) seen.push(`and ${items.length - seen.length} more`);
  return h("ul", { class: "keys" }, ...seen.map((item) => h("li", {}, item)));
}

function frequencies(group: Group): HTMLElement {
  return list(
    group.keys.map((key) => {
      const many = group.frequencies[key];
      const beside = many === undefined ? "" : ` ${count(many)}`;
      return h("span", {}, h("bdi", {}, shown(key)), h("span", { class: "soft" }, beside));
    }),
  );
}

function splits(group: Group): HTMLElement | string {
  return group.bounds.length ? list(group.bounds.map(value)) : count(group.splits);
}

function share(part: number): SVGElement {
  const width = Math.max(1, 120 * part);
  return s(
    "svg",
    { class: "share", width: 120, height: 10, "aria-hidden": "true" },
    s("rect", { class: "ground", width: 120, height: 10, rx: 2 }),
    s("rect", { width, height: 10, rx: 2 }),
  );
}
