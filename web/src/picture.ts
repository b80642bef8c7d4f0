// The controls that images, maps and comparisons share: colours, their range, zoom.

import * as colours from "./colour";
import { button, check, choice, h } from "./dom";
import type { Colours, Plane } from "./plane";
import type { Params } from "./route";
import { number } from "./text";

export function given(params: Params, map = "viridis"): Colours {
  const bound = (text: string | undefined) => {
    const value = text === undefined || text === "" ? Number.NaN : Number(text);
    return Number.isFinite(value) ? value : null;
  };
  return {
    map: colours.NAMES.includes(params["cmap"] ?? "") ? params["cmap"]! : map,
    low: bound(params["min"]),
    high: bound(params["max"]),
    robust: params["robust"] === "1",
  };
}

/** The controls of a plane, with those of the view before and after them. */
export function controls(
  plane: Plane,
  note: (params: Params) => void,
  before: (HTMLElement | null)[] = [],
  after: (HTMLElement | null)[] = [],
): HTMLElement {
  const told = () => {
    const { map, low, high, robust } = plane.colours;
    note({
      cmap: map,
      min: low === null ? "" : String(low),
      max: high === null ? "" : String(high),
      robust: robust ? "1" : "",
    });
    plane.recolour();
  };
  const bound = (label: string, key: "low" | "high") => {
    const start = plane.colours[key];
    const field = h("input", {
      type: "text",
      inputmode: "decimal",
      size: 7,
      placeholder: "auto",
      value: start === null ? "" : String(start),
      on: {
        change: () => {
          const value =
            field.value.trim() === "" ? Number.NaN : Number(field.value.replace("−", "-"));
          plane.colours[key] = Number.isFinite(value) ? value : null;
          if (!Number.isFinite(value)) field.value = "";
          told();
        },
      },
    });
    return { label: h("label", { class: "field" }, h("span", {}, label), field), field };
  };
  const low = bound("From", "low");
  const high = bound("To", "high");
  const keep = button("Keep range", () => {
    const [from, to] = plane.range();
    low.field.value = number(from, 6).replace("−", "-");
    high.field.value = number(to, 6).replace("−", "-");
    plane.colours.low = Number(low.field.value);
    plane.colours.high = Number(high.field.value);
    told();
  });
  keep.title = "Other slices are shown in the colours of this one";
  const bar = h(
    "div",
    { class: "controls" },
    ...before,
    choice(
      "Colours",
      colours.NAMES.map((name) => [name, name] as const),
      plane.colours.map,
      (map) => {
        plane.colours.map = map;
        told();
      },
    ),
    low.label,
    high.label,
    keep,
    check("Without outliers", plane.colours.robust, (robust) => {
      plane.colours.robust = robust;
      told();
    }),
    ...after,
  );
  // A narrow screen shows the picture first.
  const open = window.matchMedia("(min-width: 761px)").matches;
  return h("details", { class: "options", open }, h("summary", {}, "Options"), bar);
}
