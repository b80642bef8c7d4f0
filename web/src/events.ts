// What the pools tell of themselves. The stream ends when the page is not seen for half a minute,
// since browsers let few streams of one server live at a time; it begins anew when it is seen, and
// then everything shown is asked for again. A stream that breaks is tried again, at growing pauses.

import { address, Failure, get } from "./api";

export interface Change {
  pool: string;
  names: string[];
  more: number;
  /** Whether something has changed, and not only may have. */
  sure?: boolean;
}
export interface Space {
  pool: string;
  used: number;
  free: number;
  objects: number;
}
export interface Gone {
  pool: string;
  message: string;
}
export type State = "live" | "connecting" | "paused" | "lost" | "refused";

interface Kinds {
  change: Change;
  space: Space;
  gone: Gone;
  /** What may have been missed must be asked for again. */
  again: undefined;
  state: { state: State; failure: Failure | null };
}
type Calls = { [K in keyof Kinds]: Set<(told: Kinds[K]) => void> };

const calls: Calls = {
  change: new Set(),
  space: new Set(),
  gone: new Set(),
  again: new Set(),
  state: new Set(),
};
const HIDDEN = 30_000;
const FIRST = 500;
const LAST = 15_000;

let source: EventSource | null = null;
let pools = "";
let pause = FIRST;
let timer: number | undefined;
let opened = false;

/** Calls back with each event of a kind, until the signal ends. */
export function on<K extends keyof Kinds>(
  kind: K,
  call: (told: Kinds[K]) => void,
  signal?: AbortSignal,
): void {
  calls[kind].add(call);
  signal?.addEventListener("abort", () => calls[kind].delete(call));
}

function tell<K extends keyof Kinds>(kind: K, told: Kinds[K]): void {
  for (const call of calls[kind]) call(told);
}

const state = (now: State, failure: Failure | null = null) =>
  tell("state", { state: now, failure });

/** Listens to these pools. */
export function start(ids: readonly string[]): void {
  pools = ids.join(",");
  connect();
  document.addEventListener("visibilitychange", () => {
    window.clearTimeout(hidden);
    if (document.visibilityState === "visible") {
      if (!source) retry(0);
    } else {
      hidden = window.setTimeout(leave, HIDDEN);
    }
  });
  window.addEventListener("online", () => retry(0));
}
let hidden: number | undefined;

function leave(): void {
  window.clearTimeout(timer);
  source?.close();
  source = null;
  state("paused");
}

function retry(after: number): void {
  window.clearTimeout(timer);
  source?.close();
  source = null;
  timer = window.setTimeout(connect, after);
}

function connect(): void {
  state("connecting");
  const made = new EventSource(address("events", { pools }));
  source = made;
  made.addEventListener("open", () => {
    pause = FIRST;
    state("live");
    if (opened) tell("again", undefined);
    opened = true;
  });
  for (const kind of ["change", "space", "gone"] as const) {
    made.addEventListener(kind, (event) => {
      tell(kind, JSON.parse((event as MessageEvent<string>).data));
    });
  }
  made.addEventListener("error", () => {
    if (source !== made) return;
    made.close();
    source = null;
    void broken();
  });
}

/** A stream does not say why it broke: another request does. */
async function broken(): Promise<void> {
  let failure: Failure | null = null;
  try {
    await get("api/pools", {}, null);
  } catch (error) {
    failure = error instanceof Failure ? error : null;
  }
  const refused = failure !== null && failure.status !== 0;
  state(refused ? "refused" : failure ? "lost" : "connecting", failure);
  retry(pause * (0.75 + Math.random() / 2));
  pause = Math.min(LAST, pause * 2);
}
