// Files of the pool, and the folders where it is mounted.

import { ofPool } from "./api";
import { h } from "./dom";
import { records } from "./records";
import { link } from "./route";
import { bytes, shown, value } from "./text";

interface Mount {
  path: string;
  pid: number;
}
interface File {
  path: string;
  kind: string;
  bytes: number;
  mode: string;
  owner: unknown;
  modified: string;
}

export async function files(pool: string, signal: AbortSignal): Promise<HTMLElement> {
  const found = await ofPool<{ mounts: Mount[]; files: File[]; cut?: boolean }>(
    pool,
    "files",
    {},
    signal,
  );
  return h(
    "div",
    {},
    h("h2", {}, "Mounts"),
    records(
      "Mounts",
      found.mounts,
      [
        { head: "Folder", cell: (one) => h("bdi", { class: "code" }, shown(one.path)) },
        { head: "Process", cell: (one) => String(one.pid), figure: true },
      ],
      "It is mounted nowhere: engram mount shows it as a folder.",
    ),
    h("h2", {}, "Files, the newest first"),
    records(
      "Files",
      found.files,
      [
        {
          head: "Path",
          cell: (one) => h("a", { href: link(pool, one.path) }, h("bdi", {}, shown(one.path))),
        },
        { head: "Kind", cell: (one) => one.kind },
        { head: "Size", cell: (one) => bytes(one.bytes), figure: true },
        { head: "Mode", cell: (one) => one.mode },
        { head: "Owner", cell: (one) => value(one.owner) },
        { head: "Modified", cell: (one) => one.modified },
      ],
      "This pool has no files.",
    ),
    found.cut ? h("p", { class: "hint" }, "Older ones are left out.") : "",
  );
}
