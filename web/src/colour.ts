// Colour maps as tables of 256 colours, and how values become places in them.

import {
  interpolateCividis,
  interpolateGreys,
  interpolateRdBu,
  interpolateViridis,
} from "d3-scale-chromatic";

const MAPS: { [name: string]: (part: number) => string } = {
  viridis: interpolateViridis,
  cividis: interpolateCividis,
  RdBu: (part) => interpolateRdBu(1 - part), // high is red, as of temperatures
  grey: (part) => interpolateGreys(1 - part),
};
export const NAMES = Object.keys(MAPS);

function parts(colour: string): [number, number, number] {
  const hex = /^#(..)(..)(..)$/.exec(colour);
  if (hex) return [1, 2, 3].map((at) => Number.parseInt(hex[at]!, 16)) as [number, number, number];
  const [red = 0, green = 0, blue = 0] = (colour.match(/\d+/g) ?? []).map(Number);
  return [red, green, blue];
}

const tables = new Map<string, Uint32Array>();
/** 256 colours, as an `ImageData` of this machine's byte order (little-endian) has them. */
export function table(name: string): Uint32Array {
  const known = tables.get(name);
  if (known) return known;
  const made = new Uint32Array(256);
  const map = MAPS[name] ?? interpolateViridis;
  for (let at = 0; at < 256; at += 1) {
    const [red, green, blue] = parts(map(at / 255));
    made[at] = (255 << 24) | (blue << 16) | (green << 8) | red;
  }
  tables.set(name, made);
  return made;
}

/** The range that colours span, if nobody gives one. That of RdBu has zero in its middle. */
export function range(data: Float32Array, name: string, robust: boolean): [number, number] {
  let [low, high] = robust ? quantiles(data) : ends(data);
  if (!(low <= high)) return [0, 1];
  if (name === "RdBu" && low < 0 && high > 0) {
    high = Math.max(-low, high);
    low = -high;
  }
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

function ends(data: Float32Array): [number, number] {
  let low = Number.POSITIVE_INFINITY;
  let high = Number.NEGATIVE_INFINITY;
  for (const value of data) {
    if (!Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

/** Two and ninety-eight of a hundred values; of long data, of some of them. */
function quantiles(data: Float32Array): [number, number] {
  const every = Math.max(1, Math.floor(data.length / 65536));
  const some = data.filter((value, at) => at % every === 0 && Number.isFinite(value)).sort();
  const at = (part: number) => some[Math.round(part * (some.length - 1))] ?? Number.NaN;
  return [at(0.02), at(0.98)];
}
