// The server's answers, by type. Addresses are relative to the page's own: it may stand under a
// prefix, behind a proxy. A request belongs to a signal, and ends with it.

import { encode } from "./text";

export interface Pool {
  id: string;
  label: string;
  place: string;
  kind: "pool" | "cluster";
  uuid?: string;
  size: number;
  used: number;
  objects: number;
  durability?: string;
  error?: string;
}
export interface Pools {
  version: string;
  write: boolean;
  pools: Pool[];
}
export type Kind = "group" | "array" | "blob" | "active" | "file" | "link" | (string & {});
export interface Member {
  name: string;
  path: string;
  kind: Kind;
  dtype?: string;
  shape?: number[];
  bytes?: number;
  members?: number;
  /** Whether it has more members than are counted. */
  many?: boolean;
}
export interface Members {
  path: string;
  members: Member[];
  after: string | null;
  total?: number;
}
export interface Decoding {
  kind: "none" | "scale" | "time" | "flags";
  units?: string;
  scale_factor?: number;
  add_offset?: number;
}
export interface Coordinate {
  path: string;
  units?: string;
  first: number | string;
  last: number | string;
  regular: boolean;
}
export type ViewName = "table" | "line" | "image" | "map" | "histogram";
export interface Thing {
  path: string;
  name: string;
  kind: Kind;
  oid?: unknown;
  dtype?: string;
  shape?: number[];
  dims?: string[];
  bytes?: number;
  stored_bytes?: number;
  chunks?: number[];
  codec?: string;
  owner?: unknown;
  mode?: unknown;
  created?: string;
  modified?: string;
  attrs: { [name: string]: unknown };
  decoding?: Decoding;
  coordinates?: { [dim: string]: Coordinate };
  fields?: { name: string; dtype: string }[];
  views?: ViewName[];
  parts?: { [key: string]: unknown }[] | number;
  scope?: unknown;
  target?: string;
  nodes?: unknown;
}

/** What went wrong, and what to do about it. `status` 0: no answer at all. */
export class Failure extends Error {
  readonly status: number;
  readonly kind: string;
  readonly remedy: string | undefined;
  readonly at: [number, number] | undefined;
  constructor(
    status: number,
    told: { error?: string; message?: string; remedy?: string; at?: [number, number] },
  ) {
    super(told.message ?? `The server answered with status ${status}.`);
    this.status = status;
    this.kind = told.error ?? "";
    this.remedy = told.remedy;
    this.at = told.at;
  }
}

export type Query = { [name: string]: string | number | boolean | null | undefined };

export function address(path: string, query: Query = {}): string {
  const parts: string[] = [];
  for (const [key, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === false) continue;
    parts.push(`${key}=${encode(value === true ? "1" : String(value))}`);
  }
  return parts.length ? `${path}?${parts.join("&")}` : path;
}

const listeners = new Set<(failure: Failure | null) => void>();
/** Calls back with each failure of any request, and with null after each success. */
export function watchFailures(call: (failure: Failure | null) => void): void {
  listeners.add(call);
}
function tell(failure: Failure | null): void {
  for (const call of listeners) call(failure);
}

async function answer(path: string, init: RequestInit): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { credentials: "same-origin", cache: "no-store", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    const failure = new Failure(0, {
      error: "ServerGone",
      message: "The server does not answer.",
      remedy: "Start engram serve again, or look at its terminal; this page tries again by itself.",
    });
    tell(failure);
    throw failure;
  }
  if (response.ok) {
    tell(null);
    return response;
  }
  const told = await response.json().catch(() => ({}));
  const failure = new Failure(response.status, told as ConstructorParameters<typeof Failure>[1]);
  tell(failure);
  throw failure;
}

export async function get<T>(path: string, query: Query, signal: AbortSignal | null): Promise<T> {
  const response = await answer(address(path, query), { signal });
  return (await response.json()) as T;
}

export const ofPool = <T>(pool: string, verb: string, query: Query, signal: AbortSignal | null) =>
  get<T>(`api/p/${encode(pool)}/${verb}`, query, signal);

/** Numbers as the server sends them, with what its headers say of them. */
export interface Numbers {
  data: Float32Array;
  shape: number[];
  box: number[];
  range: [number, number];
  headers: Headers;
}

export async function numbers(
  pool: string,
  verb: string,
  query: Query,
  signal: AbortSignal | null,
): Promise<Numbers> {
  const response = await answer(address(`api/p/${encode(pool)}/${verb}`, query), { signal });
  const list = (header: string) =>
    (response.headers.get(header) ?? "").split(",").filter(Boolean).map(Number);
  const buffer = await response.arrayBuffer();
  const [low = Number.NaN, high = Number.NaN] = list("X-Engram-Range");
  return {
    data: new Float32Array(buffer),
    shape: list("X-Engram-Shape"),
    box: list("X-Engram-Box"),
    range: [low, high],
    headers: response.headers,
  };
}

export async function attachment(
  path: string,
  signal: AbortSignal | null,
): Promise<[Blob, string]> {
  const response = await answer(path, { signal });
  const told = response.headers.get("Content-Disposition") ?? "";
  const starred = /filename\*=UTF-8''([^;]+)/i.exec(told)?.[1];
  const plain = /filename="?([^";]+)"?/i.exec(told)?.[1];
  return [await response.blob(), starred ? decodeURIComponent(starred) : (plain ?? "engram")];
}

export async function post(
  pool: string,
  verb: string,
  query: Query,
  body?: unknown,
): Promise<void> {
  const headers: { [name: string]: string } = { "X-Engram": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  await answer(address(`api/p/${encode(pool)}/${verb}`, query), {
    method: "POST",
    headers,
    body: body === undefined ? null : JSON.stringify(body),
  });
}

/** Whether an error only says that nobody wants the answer any more. */
export function stale(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}
