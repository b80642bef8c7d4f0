// Latitudes and longitudes as a map: a degree is as long either way (equirectangular). Coastlines
// are those of Natural Earth; finer ones are loaded once they can be seen.

import { mesh } from "topojson-client";
import type { GeometryCollection, Topology } from "topojson-specification";
import fine from "world-atlas/land-50m.json";
import coarse from "world-atlas/land-110m.json";
import { type Axis, nice } from "./axis";
import { check, h } from "./dom";
import { problem } from "./errors";
import { planeView } from "./image";
import type { Looking, View } from "./looking";
import type { Box, Scale } from "./plane";
import { number } from "./text";
import * as theme from "./theme";

type Lines = number[][][];
const kept = new Map<string, Promise<Lines>>();

/** The lines of a file of coasts, in degrees. */
async function coasts(file: string): Promise<Lines> {
  let found = kept.get(file);
  if (!found) {
    found = (async () => {
      const response = await fetch(new URL(file, import.meta.url));
      if (!response.ok) throw new Error(`The coastlines cannot be had: status ${response.status}.`);
      const world = (await response.json()) as Topology<{ land: GeometryCollection }>;
      return mesh(world, world.objects.land).coordinates as Lines;
    })();
    kept.set(file, found);
    found.catch(() => kept.delete(file));
  }
  return found;
}

/** Which dimensions are latitude and longitude. */
export function ofMap(axes: readonly Axis[]): [number, number] | undefined {
  const find = (unit: string, names: RegExp) => {
    const byUnit = axes.findIndex((axis) => axis.numeric && axis.unit === unit);
    return byUnit >= 0 ? byUnit : axes.findIndex((axis) => axis.numeric && names.test(axis.name));
  };
  const rows = find("°N", /^(lat|latitude|y)$/i);
  const columns = find("°E", /^(lon|long|longitude|x)$/i);
  return rows >= 0 && columns >= 0 && rows < columns ? [rows, columns] : undefined;
}

function degrees(at: number, sides: [string, string]): string {
  return at === 0 ? "0°" : `${number(Math.abs(at), 6)}°${at < 0 ? sides[0] : sides[1]}`;
}

/** Steps of degrees are those of atlases. */
function ticks(low: number, high: number, most: number): number[] {
  const step = [90, 60, 45, 30, 20, 15, 10, 5, 2, 1].findLast(
    (size) => (high - low) / size <= most,
  );
  if (!step || step === 1) return nice(low, high, most);
  const first = Math.ceil(low / step);
  return Array.from(
    { length: Math.floor(high / step) - first + 1 },
    (_, at) => (first + at) * step,
  );
}

function longitudes(axis: Axis): Scale {
  const half = Math.abs(axis.at(axis.length - 1) - axis.at(0)) / Math.max(1, axis.length - 1) / 2;
  const [west, east] = [axis.at(0), axis.at(axis.length - 1)].sort((one, other) => one - other);
  const [from, to] = [west! - half, east! + half];
  const round = to - from > 359;
  // The whole earth is seen from 180° W, wherever the array begins.
  const [low, high] = round ? [-180, 180] : [from, to];
  const inside = (at: number) => (round ? from + ((((at - from) % 360) + 360) % 360) : at);
  return {
    axis,
    low,
    high,
    place: (at) => axis.place(inside(at)) + 0.5,
    ...(round ? { around: 359 } : {}),
    ticks: (one, other, most) =>
      ticks(one, other, most).map((at) => {
        const turned = ((((at + 180) % 360) + 360) % 360) - 180;
        return { at, label: Math.abs(turned) === 180 ? "180°" : degrees(turned, ["W", "E"]) };
      }),
    title: "Longitude",
  };
}

/** South is down: `v` is minus the latitude. */
function latitudes(axis: Axis): Scale {
  const half = Math.abs(axis.at(axis.length - 1) - axis.at(0)) / Math.max(1, axis.length - 1) / 2;
  const [south, north] = [axis.at(0), axis.at(axis.length - 1)].sort((one, other) => one - other);
  return {
    axis,
    low: -Math.min(90, north! + half),
    high: -Math.max(-90, south! - half),
    place: (at) => axis.place(-at) + 0.5,
    ticks: (low, high, most) =>
      ticks(-high, -low, most).map((at) => ({ at: -at, label: degrees(at, ["S", "N"]) })),
    title: "Latitude",
  };
}

/** What part of the plane an address names; all of it where an array's beginning lies within. */
function start(x: Scale, y: Scale, rows: [number, number], columns: [number, number]): Box {
  const whole = { u0: x.low, u1: x.high, v0: y.low, v1: y.high };
  const edge = (scale: Scale, at: number) => scale.axis.at(at - 0.5);
  if (rows[1] - rows[0] < y.axis.length) {
    const [one, other] = [-edge(y, rows[0]), -edge(y, rows[1])];
    whole.v0 = Math.min(one, other);
    whole.v1 = Math.max(one, other);
  }
  if (columns[1] - columns[0] < x.axis.length) {
    let [west, east] = [edge(x, columns[0]), edge(x, columns[1])].sort((a, b) => a - b) as [
      number,
      number,
    ];
    if (west >= x.high) [west, east] = [west - 360, east - 360];
    [whole.u0, whole.u1] = [west, Math.min(east, x.high)];
  }
  return whole;
}

export function map(looking: Looking): View {
  const free = ofMap(looking.axes);
  if (!free) throw new Error("No two dimensions of this array are latitude and longitude.");
  const trouble = h("div", {});
  let coast = true;
  let lines: { [file: string]: Lines } = {};
  let redraw = () => {};
  const want = (file: string) => {
    if (lines[file]) return;
    coasts(file).then(
      (found) => {
        lines = { ...lines, [file]: found };
        redraw();
      },
      (error: unknown) => trouble.replaceChildren(problem(error)),
    );
  };
  want(coarse);
  const overlay = (
    context: CanvasRenderingContext2D,
    to: (u: number, v: number) => [number, number],
    box: Box,
  ) => {
    const close = box.u1 - box.u0 < 90;
    if (close) want(fine);
    const drawn = (close && lines[fine]) || lines[coarse];
    if (coast && drawn) stroke(context, drawn, to, box);
  };
  const params = { ...looking.params, index: withMap(looking, free) };
  const view = planeView(
    { ...looking, params },
    free,
    (parts, rows, columns) => {
      const x = longitudes(looking.axes[columns]!);
      const y = latitudes(looking.axes[rows]!);
      const seen = start(x, y, parts[rows] as [number, number], parts[columns] as [number, number]);
      const [west, east] = (looking.params["lon"] ?? "").split(":").map(Number);
      if (x.around && west! < east!) [seen.u0, seen.u1] = [west!, east!];
      return { x, y, equal: true, start: seen, overlay };
    },
    [
      check("Coastlines", coast, (value) => {
        coast = value;
        redraw();
      }),
    ],
    // An index cannot say what lies on both sides of where the array begins.
    ({ u0, u1 }) => ({ lon: u1 - u0 < 359 ? `${u0.toFixed(2)}:${u1.toFixed(2)}` : "" }),
  );
  redraw = () => view.redraw?.();
  view.element.append(trouble);
  return view;
}

/** The address's index, if its ranges are the map's dimensions; else the fixed parts of it alone. */
function withMap(looking: Looking, free: [number, number]): string {
  const given = (looking.params["index"] ?? "").split(",");
  return looking.thing
    .shape!.map((_, at) => {
      const part = given[at] ?? "";
      if (free.includes(at)) return part.includes(":") ? part : ":";
      return /^\d+$/.test(part) ? part : "0";
    })
    .join(",");
}

function stroke(
  context: CanvasRenderingContext2D,
  lines: Lines,
  to: (u: number, v: number) => [number, number],
  box: Box,
): void {
  const path = new Path2D();
  for (const around of [-360, 0, 360]) {
    if (180 + around < box.u0 || -180 + around > box.u1) continue;
    for (const line of lines) {
      let before = Number.NaN;
      for (const [lon, lat] of line) {
        const [x, y] = to(lon! + around, -lat!);
        // What crosses the edge of the earth's map goes on at its other side.
        if (Math.abs(lon! - before) < 180) path.lineTo(x, y);
        else path.moveTo(x, y);
        before = lon!;
      }
    }
  }
  // A light line under a dark one: it is seen on any colour.
  context.lineJoin = "round";
  context.strokeStyle = theme.colour("coast-under");
  context.lineWidth = 2;
  context.stroke(path);
  context.strokeStyle = theme.colour("coast");
  context.lineWidth = 1;
  context.stroke(path);
}
