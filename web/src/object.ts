// A member of a pool: what it is, its values in one of several views, its attributes.

import { Failure, ofPool, post, stale, type Thing, type ViewName } from "./api";
import { type Axis, axes as axesOf, unit } from "./axis";
import { button, check, h } from "./dom";
import { downloads } from "./download";
import { fill, problem } from "./errors";
import * as events from "./events";
import { histogram } from "./histogram";
import { image } from "./image";
import { line } from "./line";
import { type Looking, later, type View } from "./looking";
import { map, ofMap } from "./map";
import { anything } from "./records";
import { adjust, go, link, type Params, type Route } from "./route";
import { table } from "./table";
import { bytes, count, dtype, shape, shown, value } from "./text";
import { members, scrolled } from "./tree";

const VIEWS: { [name in ViewName]: (looking: Looking) => View } = {
  table,
  line,
  image,
  map,
  histogram,
};
const TITLES: { [name in ViewName]: string } = {
  table: "Table",
  line: "Line",
  image: "Image",
  map: "Map",
  histogram: "Histogram",
};

export interface Place {
  route: Route;
  /** The pool's name. */
  label: string;
  /** Whether members may be changed. */
  write: boolean;
  signal: AbortSignal;
}

const hasMembers = ({ kind }: Thing) => kind === "group" || kind === "active";

export function object(host: HTMLElement, place: Place): void {
  const { route, signal } = place;
  const body = h("div", {});
  const name = route.path.split("/").at(-1) || place.label;
  const heading = h("h1", { tabindex: -1 }, h("bdi", {}, shown(name)));
  host.replaceChildren(h("header", { class: "heading" }, heading), body);
  void fill(body, signal, async () => {
    const thing = await ofPool<Thing>(route.pool, "object", { path: route.path }, signal);
    if (!signal.aborted) host.replaceChildren(new Shown(place, thing).element);
    return null;
  });
}

class Shown {
  readonly element = h("article", { class: "object" });
  private readonly place: Place;
  private thing: Thing;
  private readonly facts = h("div", {});
  private readonly attributes = h("div", {});
  private readonly trouble = h("div", {});
  private readonly body = h("div", {});
  private view: View | null = null;
  private list: { refresh(): Promise<void> } | null = null;
  private viewing: AbortController | null = null;

  constructor(place: Place, thing: Thing) {
    this.place = place;
    this.thing = thing;
    const { route, write, signal } = place;
    this.element.append(
      heading(route.pool, thing, place.label),
      this.trouble,
      this.facts,
      this.body,
      this.attributes,
      write && thing.path !== "" ? h("div", {}, changing(route.pool, thing)) : "",
    );
    this.tell();
    if (hasMembers(thing)) this.group();
    else void this.show(route.params);
    const again = later(() => void this.reread(), 20, signal);
    events.on(
      "change",
      (change) => change.pool === route.pool && this.concerns(change) && again(),
      signal,
    );
    events.on("again", again, signal);
  }

  private concerns({ names, more }: events.Change): boolean {
    const { path, kind } = this.thing;
    if (more > 0 || names.length === 0) return true;
    return names.some((one) => {
      if (one === path || path.startsWith(`${one}/`)) return true;
      if (Object.values(this.thing.coordinates ?? {}).some((at) => at.path === one)) return true;
      return kind !== "array" && one.slice(0, Math.max(0, one.lastIndexOf("/"))) === path;
    });
  }

  /** Asks for all that is shown again. What is wrong stands beside what was there last. */
  private async reread(): Promise<void> {
    const { route, signal } = this.place;
    try {
      const thing = await ofPool<Thing>(route.pool, "object", { path: route.path }, signal);
      const same =
        thing.kind === this.thing.kind &&
        thing.dtype === this.thing.dtype &&
        String(thing.shape) === String(this.thing.shape);
      this.thing = thing;
      this.trouble.replaceChildren();
      this.tell();
      if (hasMembers(thing)) await this.list?.refresh();
      else if (same && this.view) this.view.refresh();
      else await this.show(this.place.route.params);
    } catch (error) {
      if (signal.aborted || stale(error)) return;
      const removed = error instanceof Failure && error.status === 404;
      const text = new Failure(404, {
        message: "This member is no longer there.",
        remedy: "It was removed or renamed. What is shown is what it was.",
      });
      this.trouble.replaceChildren(problem(removed ? text : error, () => void this.reread()));
    }
  }

  private tell(): void {
    this.facts.replaceChildren(facts(this.thing));
    this.attributes.replaceChildren(attributes(this.place, this.thing), details(this.thing));
  }

  private group(): void {
    const { route, signal } = this.place;
    void fill(this.body, signal, async () => {
      const made = await members(route.pool, route.path, signal);
      this.list = made;
      return made.element;
    });
  }

  private async show(params: Params): Promise<void> {
    const { route, signal } = this.place;
    const { thing } = this;
    if (!thing.shape) return;
    this.viewing?.abort();
    const own = new AbortController();
    this.viewing = own;
    const both = AbortSignal.any([signal, own.signal]);
    await fill(this.body, both, async () => {
      const axes = await axesOf(route.pool, thing, both);
      if (thing.shape!.includes(0))
        return h("p", { class: "empty" }, "This array has no elements.");
      return this.viewed(params, axes, both);
    });
  }

  private viewed(params: Params, axes: Axis[], signal: AbortSignal): HTMLElement {
    const { route } = this.place;
    const { thing } = this;
    const offered = offers(thing, axes);
    const asked = params["view"] as ViewName | undefined;
    const chosen = asked && offered.includes(asked) ? asked : offered[0]!;
    const at = (changes: Params): Params => ({ ...params, view: chosen, ...changes });
    const renew = (changes: Params) => {
      this.place.route.params = changes;
      go(link(route.pool, route.path, changes));
    };
    const looking: Looking = {
      pool: route.pool,
      thing,
      axes,
      params: at({}),
      note: (changes) => {
        this.place.route.params = at(changes);
        adjust(link(route.pool, route.path, at(changes)));
      },
      renew,
      signal,
    };
    const view = VIEWS[chosen](looking);
    this.view = view;
    const tabs = h(
      "nav",
      { class: "tabs", "aria-label": "Views" },
      ...offered.map((name) =>
        h(
          "a",
          {
            href: link(route.pool, route.path, { view: name, decoded: params["decoded"] ?? "" }),
            "aria-current": name === chosen ? "page" : null,
          },
          TITLES[name],
        ),
      ),
    );
    const decoding = thing.decoding && thing.decoding.kind !== "none";
    const toggle = decoding
      ? check("Decoded values", params["decoded"] !== "0", (on) =>
          renew({
            ...this.place.route.params,
            view: chosen,
            min: "",
            max: "",
            decoded: on ? "" : "0",
          }),
        )
      : null;
    const compare = h(
      "a",
      { class: "button", href: link("compare", "", { a: `${route.pool}:${route.path}` }) },
      "Compare with…",
    );
    const foot = h(
      "div",
      { class: "foot" },
      downloads(route.pool, route.path, () => view.index(), view.picture, signal),
      compare,
    );
    return h(
      "section",
      { "aria-label": "Values" },
      h("div", { class: "bar" }, tabs, toggle),
      view.element,
      foot,
    );
  }
}

/** The views that make sense; a map needs both coordinates to be known here. */
function offers(thing: Thing, axes: Axis[]): ViewName[] {
  const told = thing.views ?? ["table"];
  const offered = told.filter((name) => name in VIEWS && (name !== "map" || ofMap(axes)));
  // What says most comes first.
  const order: ViewName[] = ["map", "image", "line", "table", "histogram"];
  const best = order.find((name) => offered.includes(name));
  const rest: ViewName[] = (["map", "image", "line", "histogram", "table"] as const).filter(
    (name) => offered.includes(name) && name !== best,
  );
  return best ? [best, ...rest] : ["table"];
}

function heading(pool: string, thing: Thing, label: string): HTMLElement {
  const names = thing.path.split("/").filter(Boolean);
  const steps = names
    .slice(0, -1)
    .map((name, at) =>
      h(
        "li",
        {},
        h("a", { href: link(pool, names.slice(0, at + 1).join("/")) }, h("bdi", {}, shown(name))),
      ),
    );
  const copy = button(
    "Copy link",
    () => {
      navigator.clipboard.writeText(location.href).then(
        () => {
          copy.textContent = "Copied";
          setTimeout(() => {
            copy.textContent = "Copy link";
          }, 1500);
        },
        () => window.prompt("Copy this link:", location.href),
      );
    },
    { class: "quiet" },
  );
  return h(
    "header",
    { class: "heading" },
    names.length > 0
      ? h(
          "nav",
          { "aria-label": "Groups above" },
          h(
            "ol",
            { class: "crumbs" },
            h("li", {}, h("a", { href: link(pool) }, h("bdi", {}, shown(label)))),
            ...steps,
          ),
        )
      : null,
    h(
      "div",
      { class: "title" },
      h("h1", { tabindex: -1 }, h("bdi", {}, shown(names.at(-1) ?? label))),
      h("span", { class: "badge" }, thing.kind),
      copy,
    ),
  );
}

type Fact = [term: string, text: string | undefined | null];

function list(facts: Fact[]): HTMLElement {
  return h(
    "dl",
    { class: "facts" },
    ...facts.map(([term, text]) => text && h("div", {}, h("dt", {}, term), h("dd", {}, text))),
  );
}

const told = (given: unknown) => (given === undefined || given === null ? null : value(given));

/** What is needed to read the values. */
function facts(thing: Thing): HTMLElement {
  const { dims, shape: lengths, fields, bytes: size, stored_bytes: stored, chunks } = thing;
  const named = lengths && dims && dims.length === lengths.length && lengths.length > 0;
  const written = named
    ? lengths.map((many, at) => `${shown(dims[at]!)} ${count(many)}`).join(" × ")
    : lengths && shape(lengths);
  const types = fields?.map((one) => `${shown(one.name)} ${one.dtype}`).join(", ");
  return list([
    ["Dtype", types || thing.dtype],
    ["Shape", written],
    ["Decoded", thing.decoding && thing.decoding.kind !== "none" ? decoded(thing) : null],
    ["Size", size === undefined ? null : bytes(size)],
    ["Stored", stored === undefined || bytes(stored) === bytes(size ?? 0) ? null : bytes(stored)],
    ["Chunks", chunks ? shape(chunks) : null],
    ["Codec", thing.codec],
    ["Leads to", thing.target ? shown(thing.target) : null],
  ]);
}

/** What else is known of a member. */
function details(thing: Thing): HTMLElement {
  return h(
    "section",
    {},
    h("h2", {}, "Details"),
    list([
      ["Owner", told(thing.owner)],
      ["Mode", told(thing.mode)],
      ["Scope", told(thing.scope)],
      ["Created", thing.created],
      ["Modified", thing.modified],
      ["Nodes", told(thing.nodes)],
      ["Parts", typeof thing.parts === "number" ? count(thing.parts) : null],
      ["Id", told(thing.oid)],
    ]),
  );
}

function decoded({ decoding }: Thing): string {
  const { kind, units, scale_factor: scale, add_offset: offset } = decoding!;
  if (kind === "scale") return `× ${scale ?? 1} + ${offset ?? 0}${units ? ` ${unit(units)}` : ""}`;
  return [kind, units ? unit(units) : ""].filter(Boolean).join(", ");
}

function attributes(place: Place, thing: Thing): HTMLElement {
  const entries = Object.entries(thing.attrs).sort(([one], [other]) => (one < other ? -1 : 1));
  const rows = entries.map(([key, given]) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, h("bdi", {}, shown(key))),
      h("td", { class: "told-value" }, h("bdi", {}, value(given))),
      h("td", { class: "soft" }, dtype(given)),
      place.write ? h("td", {}, removal(place.route, key)) : null,
    ),
  );
  return h(
    "section",
    {},
    h("h2", {}, "Attributes"),
    entries.length
      ? scrolled(h("table", { class: "list attributes" }, h("tbody", {}, ...rows)), "Attributes")
      : h("p", { class: "empty" }, "It has none."),
    place.write ? setting(place.route) : null,
    ...(Array.isArray(thing.parts) && thing.parts.length
      ? [h("h2", {}, "Parts"), anything("Parts", thing.parts, "")]
      : []),
  );
}

function removal(route: Route, key: string): HTMLElement {
  const made = button(
    "Remove",
    () => {
      post(route.pool, "attr", { path: route.path }, { remove: [key] }).catch((error: unknown) =>
        made.replaceWith(problem(error)),
      );
    },
    { class: "quiet", "aria-label": `Remove attribute ${shown(key)}` },
  );
  return made;
}

/** A form that sets an attribute. The server reads what is typed: numbers of a browser lose some. */
function setting(route: Route): HTMLElement {
  const key = h("input", {
    type: "text",
    "aria-label": "Name of the attribute",
    placeholder: "name",
    required: true,
  });
  const text = h("input", {
    type: "text",
    "aria-label": "Value of the attribute",
    placeholder: "value",
  });
  const trouble = h("div", {});
  return h(
    "form",
    {
      class: "controls",
      on: {
        submit: (event: SubmitEvent) => {
          event.preventDefault();
          const texts = { [key.value]: text.value };
          post(route.pool, "attr", { path: route.path }, { texts }).then(
            () => {
              key.value = text.value = "";
              trouble.replaceChildren();
            },
            (error: unknown) => trouble.replaceChildren(problem(error)),
          );
        },
      },
    },
    key,
    text,
    h("button", { type: "submit" }, "Set attribute"),
    trouble,
  );
}

/** Renames and removes, after a question. */
function changing(pool: string, thing: Thing): HTMLElement {
  const trouble = h("div", {});
  const failed = (error: unknown) => trouble.replaceChildren(problem(error));
  const above = thing.path.includes("/") ? thing.path.slice(0, thing.path.lastIndexOf("/")) : "";
  const to = h("input", { type: "text", value: thing.path, "aria-label": "New path", size: 40 });
  const form = h(
    "form",
    {
      class: "controls",
      on: {
        submit: (event: SubmitEvent) => {
          event.preventDefault();
          post(pool, "rename", { path: thing.path, to: to.value }).then(
            () => go(link(pool, to.value)),
            failed,
          );
        },
      },
    },
    to,
    h("button", { type: "submit" }, "Rename"),
  );
  const sure = h(
    "dialog",
    { "aria-label": "Remove this member?" },
    h(
      "p",
      {},
      "Remove ",
      h("strong", {}, h("bdi", {}, shown(thing.path))),
      "? It cannot be brought back.",
    ),
    h(
      "div",
      { class: "controls" },
      button("Keep it", () => sure.close(), { autofocus: true }),
      button(
        "Remove it",
        () => {
          sure.close();
          post(pool, "delete", { path: thing.path }).then(() => go(link(pool, above)), failed);
        },
        { class: "danger" },
      ),
    ),
  );
  return h(
    "section",
    {},
    h("h2", {}, "Change"),
    form,
    button("Remove…", () => sure.showModal(), { class: "danger" }),
    sure,
    trouble,
  );
}
