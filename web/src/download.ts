// What is seen, as a file. The server makes it, and bounds it; a picture is made of what is drawn.

import { address, attachment } from "./api";
import { button, h } from "./dom";
import { problem } from "./errors";
import { encode } from "./text";

export function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const anchor = h("a", { href: url, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** Buttons for each kind of file. `index` says what part of the array is meant, at that time. */
export function downloads(
  pool: string,
  path: string,
  index: () => string,
  picture: (() => Promise<Blob | null>) | undefined,
  signal: AbortSignal,
): HTMLElement {
  const trouble = h("div", {});
  const failed = (error: unknown) => {
    if (!signal.aborted) trouble.replaceChildren(problem(error));
  };
  const fetched = (kind: string) => {
    trouble.replaceChildren();
    const query = { path, index: index(), as: kind };
    attachment(address(`api/p/${encode(pool)}/download`, query), signal).then(
      ([blob, name]) => save(blob, name),
      failed,
    );
  };
  const drawn = async () => {
    const blob = await picture?.();
    if (blob) save(blob, `${path.split("/").pop() || "engram"}.png`);
  };
  return h(
    "div",
    { class: "downloads" },
    h(
      "span",
      { class: "group", role: "group", "aria-label": "Download what is shown" },
      h("span", { class: "label" }, "Download"),
      button("netCDF", () => fetched("netcdf")),
      button("CSV", () => fetched("csv")),
      button("NumPy", () => fetched("npy")),
      picture ? button("PNG", () => void drawn().catch(failed)) : null,
    ),
    trouble,
  );
}
