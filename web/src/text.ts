// How names, numbers and values are shown, and how names stand in addresses.

import { h } from "./dom";

// Characters that are not seen, or that change the order of others: shown as escapes.
const UNSEEN =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what it is for
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** A text whose every character can be seen. */
export function shown(text: string): string {
  return text.replace(UNSEEN, (found) => {
    const code = found.charCodeAt(0);
    if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
    return `\\u${code.toString(16).padStart(4, "0")}`;
  });
}

/** A text of several lines, whose every character can be seen. */
export const lines = (text: string): string => text.split("\n").map(shown).join("\n");

/** What a server says, as a sentence. */
export function sentence(text: string): string {
  const seen = shown(text.trim());
  const begun = /^[a-z][\w+.-]*:\/\//.test(seen)
    ? seen
    : seen.slice(0, 1).toUpperCase() + seen.slice(1);
  return begun && begun + (/[.!?…]$/.test(begun) ? "" : ".");
}

/** A name as an element: its direction is its own, whatever stands beside it. */
export function name(text: string, kind = ""): HTMLElement {
  return h("bdi", { class: `name ${kind}`, title: shown(text) }, shown(text));
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
/** 1536 as "1.5 KiB". */
export function bytes(count: number): string {
  let unit = 0;
  let left = count;
  while (left >= 1024 && unit < SIZES.length - 1) {
    left /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || left >= 100 ? 0 : left >= 10 ? 1 : 2;
  return `${left.toFixed(digits).replace(/\.0+$/, "")} ${SIZES[unit]}`;
}

/** 1234567 as "1,234,567" (with narrow spaces, as in ISO 80000). */
export function count(value: number): string {
  const text = String(Math.trunc(value));
  return Math.abs(value) < 10000 ? text : text.replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** A number in at most `digits` significant digits, with a true minus sign. */
export function number(value: number, digits = 6): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "NaN" : value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size >= 1e7 || size < 1e-4
      ? value
          .toExponential(Math.max(0, digits - 1))
          .replace(/\.?0+e/, "e")
          .replace("e+", "e")
      : String(Number(value.toPrecision(digits)));
  return text.replace(/-/g, "−");
}

export function seconds(value: number): string {
  if (value < 1e-3) return `${number(value * 1e6, 3)} µs`;
  return value < 1 ? `${number(value * 1e3, 3)} ms` : `${number(value, 3)} s`;
}

/** Shapes are written as numpy's. */
export function shape(lengths: readonly number[]): string {
  return lengths.length === 0 ? "scalar" : lengths.map(count).join(" × ");
}

/** A value of an attribute, as JSON holds it (numbers that JSON cannot hold are objects). */
export function value(given: unknown): string {
  if (given === null || given === undefined) return "none";
  if (typeof given === "string") return shown(given);
  if (typeof given === "number") return number(given, 15);
  if (typeof given === "boolean") return given ? "true" : "false";
  if (Array.isArray(given)) return `[${given.map(value).join(", ")}]`;
  return tagged(given as { [key: string]: unknown });
}

function tagged(given: { [key: string]: unknown }): string {
  if (typeof given["int"] === "string") return given["int"];
  if (typeof given["float"] === "string") return given["float"];
  if (typeof given["bytes"] === "string")
    return `${given["bytes"]} (${String(given["size"])} bytes)`;
  if (typeof given["text"] === "string") return `${shown(given["text"])} …`;
  if (Array.isArray(given["complex"])) {
    const [real, imaginary] = given["complex"].map(value) as [string, string];
    return imaginary.startsWith("-")
      ? `${real} - ${imaginary.slice(1)}i`
      : `${real} + ${imaginary}i`;
  }
  if ("array" in given) return value(given["array"]) + (given["cut"] ? " …" : "");
  return `{${Object.entries(given)
    .map(([key, part]) => `${shown(key)}: ${value(part)}`)
    .join(", ")}}`;
}

/** The dtype of an array in an attribute, if it has one. */
export function dtype(given: unknown): string {
  const told = (given as { dtype?: unknown } | null)?.dtype;
  return typeof told === "string" ? told : "";
}

/** Percent-encodes a name. */
export const encode = (text: string): string => encodeURIComponent(text.toWellFormed());

/** What `encode` made, as it was. What is no percent-encoding stands for itself. */
export function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The order of names in a pool, which is the order of their code points. */
export function order(one: string, other: string): number {
  const left = [...one];
  const right = [...other];
  for (let at = 0; at < left.length && at < right.length; at += 1) {
    const gap = left[at]!.codePointAt(0)! - right[at]!.codePointAt(0)!;
    if (gap !== 0) return gap;
  }
  return left.length - right.length;
}
