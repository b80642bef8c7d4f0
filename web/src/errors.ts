// What went wrong, where it went wrong, and what to do.

import { Failure, stale } from "./api";
import { button, h } from "./dom";
import { sentence } from "./text";

const REMEDIES: { [status: number]: string } = {
  401: "Open the URL that engram serve printed in its terminal: it has the token.",
  403: "Open the page by the address that engram serve printed, or start it with --allow-host.",
  404: "It may have been removed or renamed: look for it in the tree.",
  409: "Somebody else changed it meanwhile: load the page anew.",
  410: "Start engram serve again once the pool is there again.",
  413: "Narrow it: show a smaller part, or fewer dimensions.",
  429: "Wait a moment, then try again.",
  503: "Close other pages of this server, or wait a moment.",
};

export function remedy(failure: Failure): string {
  return failure.remedy ?? REMEDIES[failure.status] ?? "";
}

/** An error as an element, with a button that tries again if there is something to try. */
export function problem(error: unknown, again?: () => void): HTMLElement {
  const known = error instanceof Failure ? error : null;
  const text = error instanceof Error ? error.message : String(error);
  const advice = known ? remedy(known) : "";
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("p", {}, h("strong", {}, sentence(text))),
    advice ? h("p", {}, sentence(advice)) : null,
    again ? button("Try again", again) : null,
  );
}

/** Fills `host` with what `call` makes, or with what went wrong. */
export async function fill(
  host: HTMLElement,
  signal: AbortSignal,
  call: () => Promise<Node | null>,
): Promise<void> {
  host.setAttribute("aria-busy", "true");
  try {
    const made = await call();
    if (!signal.aborted && made) host.replaceChildren(made);
  } catch (error) {
    if (signal.aborted || stale(error)) return;
    if (!(error instanceof Failure)) console.error(error);
    host.replaceChildren(problem(error, () => void fill(host, signal, call)));
  } finally {
    host.removeAttribute("aria-busy");
  }
}
