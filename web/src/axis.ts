// A dimension with its coordinate: which value stands at which place. A place is an index, and a
// fraction of one between two. Long coordinates are known at every `step`-th place, and between
// them by interpolation: an answer has at most 8192 values.

import { type Coordinate, ofPool, type Thing } from "./api";
import { number, shown } from "./text";

const MOST = 8192;

export class Axis {
  readonly name: string;
  readonly length: number;
  readonly units: string;
  /** Whether values are instants, in seconds since 1970. */
  readonly time: boolean;
  private readonly values: ArrayLike<number> | null;
  private readonly texts: readonly string[] | null;
  private readonly step: number;

  constructor(
    name: string,
    length: number,
    units = "",
    given: readonly (number | string)[] | null = null,
    step = 1,
  ) {
    this.name = name;
    this.length = length;
    this.step = step;
    const texts = given?.some((value) => typeof value === "string") ? given.map(String) : null;
    const instants = texts?.map(instant) ?? null;
    this.time = instants?.every(Number.isFinite) ?? false;
    this.texts = this.time ? null : texts;
    const numbers = this.time ? instants : texts ? null : (given as readonly number[] | null);
    this.values = numbers && monotone(numbers) ? numbers : null;
    if (numbers && !this.values) this.texts = numbers.map((value) => number(value));
    this.units = this.time ? "" : units;
  }

  /** Whether places have values that can be calculated with. */
  get numeric(): boolean {
    return this.values !== null;
  }

  /** The value at a place; the place itself where there is no coordinate. */
  at(place: number): number {
    const known = this.values;
    if (!known) return place;
    if (known.length === 1) return known[0]! + place;
    const exact = place / this.step;
    const left = Math.min(Math.max(Math.floor(exact), 0), known.length - 2);
    return known[left]! + (exact - left) * (known[left + 1]! - known[left]!);
  }

  /** The place of a value: the inverse of `at`. */
  place(value: number): number {
    const known = this.values;
    if (!known) return value;
    if (known.length === 1) return value - known[0]!;
    const rising = known[known.length - 1]! > known[0]!;
    let low = 0;
    let high = known.length - 2;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (rising ? known[middle]! <= value : known[middle]! >= value) low = middle;
      else high = middle - 1;
    }
    return (low + (value - known[low]!) / (known[low + 1]! - known[low]!)) * this.step;
  }

  /** What is said of an index: its value with units, or nothing where there is no coordinate. */
  label(index: number): string {
    if (this.texts) return shown(this.texts[Math.round(index / this.step)] ?? "");
    if (!this.values) return "";
    const value = this.at(index);
    return this.time ? when(value) : `${number(value)}${this.units ? ` ${this.unit}` : ""}`;
  }

  /** Units as they are printed. */
  get unit(): string {
    return unit(this.units);
  }

  get title(): string {
    return this.unit ? `${shown(this.name)} (${this.unit})` : shown(this.name);
  }

  /** At most `most` ticks of places between two, with labels. */
  ticks(low: number, high: number, most: number): { place: number; label: string }[] {
    if (this.values && !this.time) {
      const [from, to] = [this.at(low), this.at(high)].sort((one, other) => one - other);
      return nice(from!, to!, most).map((value) => ({
        place: this.place(value),
        label: number(value),
      }));
    }
    return nice(low, high, most, 1)
      .filter((place) => place > -0.5 && place < this.length - 0.5)
      .map((place) => ({
        place,
        label: this.time
          ? when(this.at(place)).slice(0, 16)
          : this.label(place) || number(place, 12),
      }));
  }
}

export function unit(units: string): string {
  if (/^degrees?_?(n(orth)?|N)$/.test(units)) return "°N";
  if (/^degrees?_?(e(ast)?|E)$/.test(units)) return "°E";
  return shown(units);
}

function monotone(values: readonly number[]): boolean {
  if (values.some((value) => !Number.isFinite(value))) return false;
  const sign = Math.sign((values[1] ?? 1) - (values[0] ?? 0));
  return (
    sign !== 0 &&
    values.every((value, at) => at === 0 || Math.sign(value - values[at - 1]!) === sign)
  );
}

function instant(text: string): number {
  if (!/^\d{4}-\d\d-\d\d/.test(text)) return Number.NaN;
  return Date.parse(text.length > 10 && !/[Z+]/.test(text) ? `${text}Z` : text) / 1000;
}

/** An instant, as short as it is exact. */
export function when(seconds: number): string {
  const text = new Date(Math.round(seconds * 1000)).toISOString();
  return text.replace(/(?:T00:00)?(?::00)?(?:\.000)?Z$/, "").replace("T", " ");
}

/** Round numbers between two. */
export function nice(low: number, high: number, most: number, least = 0): number[] {
  const raw = (high - low) / Math.max(1, most);
  if (!(raw > 0) || !Number.isFinite(raw)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max(least, power * ([1, 2, 5, 10].find((round) => round * power >= raw) ?? 10));
  const made: number[] = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) {
    made.push(Number((at * step).toPrecision(12)));
  }
  return made;
}

/** The axes of an array, with their coordinates. */
export async function axes(pool: string, thing: Thing, signal: AbortSignal): Promise<Axis[]> {
  // A table has one dimension that is looked through, its rows; its columns have names.
  const lengths = thing.kind === "table" ? [thing.shape![0]!] : (thing.shape ?? []);
  return Promise.all(
    lengths.map(async (length, at) => {
      const name = thing.dims?.[at] || (thing.kind === "table" ? "row" : `dim ${at}`);
      const told = thing.coordinates?.[name];
      if (!told || length === 0) return new Axis(name, length);
      return coordinate(pool, thing.path, name, length, told, signal);
    }),
  );
}

async function coordinate(
  pool: string,
  path: string,
  name: string,
  length: number,
  told: Coordinate,
  signal: AbortSignal,
): Promise<Axis> {
  const { first, last, units } = told;
  if (told.regular && typeof first === "number" && typeof last === "number" && length > 1) {
    return new Axis(name, length, units, [first, last], length - 1);
  }
  const step = Math.ceil(length / MOST);
  const query = { path, dim: name, index: `0:${length}:${step}` };
  try {
    const found = await ofPool<{ values: (number | string)[]; units?: string }>(
      pool,
      "coordinate",
      query,
      signal,
    );
    return new Axis(name, length, found.units ?? units, found.values, step);
  } catch (error) {
    signal.throwIfAborted();
    console.warn(error);
    return new Axis(name, length); // its indices can be shown all the same
  }
}
