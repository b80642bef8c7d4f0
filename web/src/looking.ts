// What a view of an array is given, and what it gives back.

import type { Thing } from "./api";
import type { Axis } from "./axis";
import type { Params } from "./route";

export interface Looking {
  pool: string;
  thing: Thing;
  axes: Axis[];
  /** What the address says of the view. */
  params: Params;
  /** Says so in the address, without a step of the history. */
  note(params: Params): void;
  /** Makes the view anew with these parameters. */
  renew(params: Params): void;
  /** Ends when the view does. */
  signal: AbortSignal;
}

export interface View {
  element: HTMLElement;
  /** The array has changed. */
  refresh(): void;
  /** Draws the same again. */
  redraw?(): void;
  /** What is seen, as a picture. */
  picture?(): Promise<Blob | null>;
  /** What is seen, as an index of the array. */
  index(): string;
}

/** Requests of which only the newest counts: one that starts ends the one before. */
export class Newest {
  private running: AbortController | null = null;
  private readonly signal: AbortSignal;
  constructor(signal: AbortSignal) {
    this.signal = signal;
  }
  async run<T>(call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    this.running?.abort();
    const own = new AbortController();
    this.running = own;
    return call(AbortSignal.any([own.signal, this.signal]));
  }
}

/** Calls `call` once no further call has come for `pause` milliseconds. */
export function later(call: () => void, pause: number, signal: AbortSignal): () => void {
  let timer: number | undefined;
  signal.addEventListener("abort", () => window.clearTimeout(timer));
  return () => {
    window.clearTimeout(timer);
    if (!signal.aborted) timer = window.setTimeout(call, pause);
  };
}
