// Bundles the page into python/engram/web/page/, which the package carries and git does not.
// The names of scripts and styles hold their digests: a browser may keep them for good.

import { mkdir, readdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const place = process.argv[2] ?? join(here, "../python/engram/web/page");
const out = `${place}.new`; // it takes the place of what is there once it is whole
const assets = join(out, "assets");

await rm(out, { recursive: true, force: true });
await mkdir(assets, { recursive: true });
const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: ["src/main.ts", "src/style.css", "src/icon.svg"],
  outdir: assets,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome120", "firefox124", "safari17.4"],
  entryNames: "[name]-[hash]",
  assetNames: "[name]-[hash]",
  loader: { ".svg": "copy", ".json": "file" },
  metafile: true,
  logLevel: "warning",
});

const made = Object.entries(metafile.outputs);
const named = (source) => basename(made.find(([, told]) => told.entryPoint === source)[0]);
let page = await readFile(join(here, "src/index.html"), "utf8");
for (const source of ["main.ts", "style.css", "icon.svg"]) {
  page = page.replace(`{${source}}`, `assets/${named(`src/${source}`)}`);
}
await writeFile(join(out, "index.html"), page);

// What is bundled says itself under which licence it is.
const packages = new Set();
for (const input of Object.keys(metafile.inputs)) {
  const name = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input)?.[1];
  if (name) packages.add(name);
}
const texts = ["What the page of `engram serve` bundles, and under which licences.\n"];
for (const name of [...packages].sort()) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} has no licence file: leave it out, or say here where it is`);
  const text = await readFile(join(folder, file), "utf8");
  texts.push(`${"=".repeat(80)}\n${name} ${version} (${license})\n\n${text.trim()}\n`);
}
await writeFile(join(assets, "THIRD-PARTY.txt"), texts.join("\n"));
await rm(place, { recursive: true, force: true });
await rename(out, place);
