// Two dimensions of an array as an image: rows downwards, columns to the right.

import { type Numbers, numbers } from "./api";
import type { Axis } from "./axis";
import { unit } from "./axis";
import { choice, h } from "./dom";
import type { Looking, View } from "./looking";
import * as picture from "./picture";
import { type Box, type Level, Plane, type Scale } from "./plane";
import type { Params } from "./route";
import { choose, control, type Part, write } from "./slices";
import { shown } from "./text";

export const REDUCTIONS = [
  ["mean", "mean"],
  ["min", "minimum"],
  ["max", "maximum"],
  ["nearest", "nearest"],
] as const;

/** A scale on which element i is from i to i + 1. */
export function counted(axis: Axis): Scale {
  return {
    axis,
    low: 0,
    high: axis.length,
    place: (at) => at,
    ticks: (low, high, most) =>
      axis
        .ticks(Math.max(low, 0) - 0.5, Math.min(high, axis.length) - 0.5, most)
        .map(({ place, label }) => ({ at: place + 0.5, label })),
    title: axis.title,
  };
}

export function levelOf(found: Numbers): Level {
  const [height = 0, width = 0] = found.shape;
  const numbersOf = (header: string) => (found.headers.get(header) ?? "").split(",").map(Number);
  return {
    data: found.data,
    width,
    height,
    box: found.box,
    unit: found.headers.get("X-Engram-Units") ?? "",
    sampled: numbersOf("X-Engram-Sampled"),
  };
}

export function unitOf(looking: Looking): string {
  const { thing, params } = looking;
  if (params["decoded"] === "0") return "";
  const told = thing.decoding?.units ?? thing.attrs["units"];
  return typeof told === "string" && thing.decoding?.kind !== "time" ? unit(told) : "";
}

/** What stands in all views of planes: sliders, reduction, colours, the plane itself. */
export function planeView(
  looking: Looking,
  free: [number, number] | undefined,
  make: (
    parts: Part[],
    rows: number,
    columns: number,
  ) => Omit<
    ConstructorParameters<typeof Plane>[0],
    "load" | "moved" | "signal" | "colours" | "unit" | "label"
  >,
  more: (HTMLElement | null)[] = [],
  noted: (box: Box) => Params = () => ({}),
): View {
  const { thing, axes, params, signal } = looking;
  const lengths = thing.shape!;
  const parts = choose(params["index"], lengths, 2, free);
  const [rows, columns] = parts.flatMap((part, at) => (Array.isArray(part) ? [at] : [])) as [
    number,
    number,
  ];
  const seen: Part[] = [...parts];
  const state: Params = { ...params };
  const note = (changes: Params) => {
    Object.assign(state, changes);
    looking.note(state);
  };
  const index = () => write(seen, lengths);
  const plane = new Plane({
    ...make(parts, rows, columns),
    colours: picture.given(params),
    unit: unitOf(looking),
    label: `${shown(thing.name)}, ${axes[rows]!.name} by ${axes[columns]!.name}`,
    load: async (r, c, [width, height], own) => {
      const asked: Part[] = [...slices.parts];
      asked[rows] = r;
      asked[columns] = c;
      const query = {
        path: thing.path,
        index: write(asked, lengths),
        width,
        height,
        reduce: state["reduce"] ?? "mean",
        decoded: state["decoded"] ?? "1",
      };
      return levelOf(await numbers(looking.pool, "image", query, own));
    },
    moved: (r, c, box) => {
      seen[rows] = r;
      seen[columns] = c;
      note({ index: index(), ...noted(box) });
    },
    signal,
  });
  const moved = () => {
    for (const [at, part] of slices.parts.entries()) if (typeof part === "number") seen[at] = part;
    note({ index: index() });
    plane.refresh();
  };
  const slices = control(axes, [...parts], signal, moved, (set) => {
    const asked = parts.map(
      (part, at): Part =>
        set.includes(at) ? [0, lengths[at]!] : typeof part === "number" ? part : 0,
    );
    looking.renew({ ...state, index: write(asked, lengths) });
  });
  const reduce = choice("Reduce by", REDUCTIONS, params["reduce"] ?? "mean", (value) => {
    note({ reduce: value === "mean" ? "" : value });
    state["reduce"] = value;
    plane.refresh();
  });
  const bar = picture.controls(plane, note, [slices.pick], [reduce, ...more]);
  return {
    element: h("div", { class: "view" }, slices.element, bar, plane.element),
    refresh: () => plane.refresh(),
    redraw: () => plane.recolour(),
    picture: () => plane.picture(`${shown(thing.path)} [${index()}]`),
    index,
  };
}

export function image(looking: Looking): View {
  const lengths = looking.thing.shape!;
  return planeView(looking, undefined, (parts, rows, columns) => {
    const [r0, r1] = parts[rows] as [number, number];
    const [c0, c1] = parts[columns] as [number, number];
    const ratio = lengths[columns]! / lengths[rows]!;
    const whole = r1 - r0 === lengths[rows] && c1 - c0 === lengths[columns];
    return {
      x: counted(looking.axes[columns]!),
      y: counted(looking.axes[rows]!),
      equal: whole && ratio < 4 && ratio > 1 / 3,
      start: { u0: c0, u1: c1, v0: r0, v1: r1 },
    };
  });
}
