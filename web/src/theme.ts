// Light or dark: what the system says, or what is chosen here (kept by the browser).

import { choice } from "./dom";

const KEY = "engram-theme";
const listeners = new Set<() => void>();
const dark = window.matchMedia("(prefers-color-scheme: dark)");

function kept(): string {
  try {
    return localStorage.getItem(KEY) ?? "auto";
  } catch {
    return "auto"; // a browser that keeps nothing
  }
}

function apply(theme: string): void {
  const real = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
  document.documentElement.dataset["theme"] = real;
  for (const call of listeners) call();
}

export function start(): void {
  apply(kept());
  dark.addEventListener("change", () => apply(kept()));
}

export function control(): HTMLElement {
  const options = [
    ["auto", "System"],
    ["light", "Light"],
    ["dark", "Dark"],
  ] as const;
  return choice("Theme", options, kept(), (theme) => {
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // It holds until the page is left.
    }
    apply(theme);
  });
}

/** Calls back when colours change: canvases are drawn anew. */
export function watch(call: () => void, signal: AbortSignal): void {
  listeners.add(call);
  signal.addEventListener("abort", () => listeners.delete(call));
}

/** A colour of the style sheet. */
export const colour = (name: string): string =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
