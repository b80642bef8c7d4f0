// Stages: what is brought into the pool from files, and written back.

import { ofPool } from "./api";
import { anything } from "./records";

export async function stages(pool: string, signal: AbortSignal): Promise<HTMLElement> {
  const found = await ofPool<{ stages: { [key: string]: unknown }[] }>(pool, "stages", {}, signal);
  return anything("Stages", found.stages, "This pool has no stages. engram stage begins one.");
}
