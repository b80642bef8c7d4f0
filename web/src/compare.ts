// Two arrays of one shape: where they differ, and by how much.

import { type Numbers, numbers, ofPool, type Thing } from "./api";
import { type Axis, axes as axesOf } from "./axis";
import { h } from "./dom";
import { fill } from "./errors";
import { counted, levelOf } from "./image";
import { type Course, show } from "./line";
import * as picture from "./picture";
import { Plane } from "./plane";
import { adjust, go, link, type Params, type Route } from "./route";
import { choose, control, type Part, write } from "./slices";
import { count, number, shown } from "./text";

interface Stats {
  equal: number;
  count: number;
  max_abs: number | { float: string };
  rms: number | { float: string };
}
interface End {
  pool: string;
  path: string;
}

function end(text: string | undefined): End | null {
  const colon = text?.indexOf(":") ?? -1;
  return text && colon > 0 ? { pool: text.slice(0, colon), path: text.slice(colon + 1) } : null;
}

export function compare(
  host: HTMLElement,
  route: Route,
  pools: readonly [string, string][],
  signal: AbortSignal,
): void {
  const [a, b] = [end(route.params["a"]), end(route.params["b"])];
  const body = h("div", {});
  const chosen = [picker("First", pools, a), picker("Second", pools, b)] as const;
  const form = h(
    "form",
    {
      class: "compare",
      on: {
        submit: (event: SubmitEvent) => {
          event.preventDefault();
          const [one, other] = chosen.map((each) => each.value());
          go(link("compare", "", { a: one!, b: other! }));
        },
      },
    },
    chosen[0].element,
    chosen[1].element,
    h("button", { type: "submit", class: "primary" }, "Compare"),
  );
  host.replaceChildren(
    h("header", { class: "heading" }, h("h1", { tabindex: -1 }, "Compare two arrays")),
    h(
      "p",
      { class: "lead" },
      "What is drawn is the second array minus the first. Both must have the same shape.",
    ),
    form,
    body,
  );
  if (a?.path && b?.path) void fill(body, signal, () => difference(route.params, a, b, signal));
}

function picker(label: string, pools: readonly [string, string][], given: End | null) {
  const pool = h(
    "select",
    { "aria-label": `${label} array: pool` },
    ...pools.map(([id, name]) =>
      h("option", { value: id, selected: id === given?.pool }, shown(name)),
    ),
  );
  const path = h("input", {
    type: "text",
    value: given?.path ?? "",
    placeholder: "group/array",
    "aria-label": `${label} array: path`,
    spellcheck: "false",
    required: true,
  });
  return {
    element: h(
      "div",
      { class: "field" },
      h("span", {}, label),
      pools.length > 1 ? pool : null,
      path,
    ),
    value: () => `${pool.value}:${path.value.trim().replace(/^\//, "")}`,
  };
}

interface Comparing {
  a: End;
  b: End;
  thing: Thing;
  axes: Axis[];
  params: Params;
  stats: HTMLElement;
  signal: AbortSignal;
}

async function difference(
  params: Params,
  a: End,
  b: End,
  signal: AbortSignal,
): Promise<HTMLElement> {
  const thing = await ofPool<Thing>(a.pool, "object", { path: a.path }, signal);
  if (!thing.shape?.length) throw new Error("Only arrays of at least one dimension are compared.");
  const axes = await axesOf(a.pool, thing, signal);
  const stats = h("dl", { class: "facts", "aria-live": "polite" });
  const comparing = { a, b, thing, axes, params, stats, signal };
  const drawn = thing.shape.length < 2 ? alongOne(comparing) : onPlane(comparing);
  return h("div", { class: "view" }, stats, await drawn);
}

async function ask(
  { a, b, stats }: Comparing,
  index: string,
  size: [number, number],
  signal: AbortSignal,
): Promise<Numbers> {
  const query = { a: a.path, b: b.path, with: b.pool, index, width: size[0], height: size[1] };
  const found = await numbers(a.pool, "compare", query, signal);
  const told = found.headers.get("X-Engram-Stats");
  if (told) stats.replaceChildren(...facts(JSON.parse(told) as Stats));
  return found;
}

function labelOf({ a, b }: Comparing): string {
  return `${shown(b.path)} minus ${shown(a.path)}`;
}

async function alongOne(comparing: Comparing): Promise<HTMLElement> {
  const { axes, signal } = comparing;
  const host = h("div", { class: "chart", role: "img", "aria-label": labelOf(comparing) });
  const found = await ask(comparing, ":", [1024, 1], signal);
  const length = found.data.length;
  const [from = 0, to = length] = found.box;
  const step = (to - from) / Math.max(1, length);
  const course: Course = { first: from, step, rows: [found.data] };
  queueMicrotask(() => show(host, course, axes[0]!, "second − first", "", signal));
  return host;
}

async function onPlane(comparing: Comparing): Promise<HTMLElement> {
  const { axes, params, signal } = comparing;
  const lengths = comparing.thing.shape!;
  const parts = choose(params["index"], lengths, 2).map(
    (part, at): Part => (Array.isArray(part) ? [0, lengths[at]!] : part),
  );
  const [rows, columns] = parts.flatMap((part, at) => (Array.isArray(part) ? [at] : [])) as [
    number,
    number,
  ];
  const state: Params = { ...params };
  const note = (changes: Params) => adjust(link("compare", "", Object.assign(state, changes)));
  const slices = control(
    axes,
    parts,
    signal,
    () => {
      note({ index: write(slices.parts, lengths) });
      plane.refresh();
    },
    (set) => {
      const asked = lengths.map((length, at): Part => (set.includes(at) ? [0, length] : 0));
      go(link("compare", "", { ...state, index: write(asked, lengths) }));
    },
  );
  const x = counted(axes[columns]!);
  const y = counted(axes[rows]!);
  const ratio = x.axis.length / y.axis.length;
  const plane = new Plane({
    x,
    y,
    equal: ratio < 4 && ratio > 1 / 3,
    start: { u0: 0, u1: x.high, v0: 0, v1: y.high },
    colours: picture.given(params, "RdBu"),
    unit: "second − first",
    label: labelOf(comparing),
    load: async (r, c, size, own) => {
      const asked: Part[] = [...slices.parts];
      asked[rows] = r;
      asked[columns] = c;
      return levelOf(await ask(comparing, write(asked, lengths), size, own));
    },
    moved: () => {},
    signal,
  });
  const bar = picture.controls(plane, note, [slices.pick]);
  return h("div", {}, slices.element, bar, plane.element);
}

function facts(stats: Stats): HTMLElement[] {
  const pairs: [string, string][] = [
    ["Compared", count(stats.count)],
    ["Equal", `${count(stats.equal)} (${stats.count ? share(stats.equal / stats.count) : "—"})`],
    ["Largest difference", loose(stats.max_abs)],
    ["Root mean square", loose(stats.rms)],
  ];
  return pairs.map(([term, text]) => h("div", {}, h("dt", {}, term), h("dd", {}, text)));
}

/** A share; one that is nearly all is not rounded to all. */
function share(part: number): string {
  const percent = part * 100;
  return `${percent > 99.9 && percent < 100 ? "> 99.9" : number(percent, 3)} %`;
}

const loose = (given: Stats["rms"]) => (typeof given === "number" ? number(given) : given.float);
