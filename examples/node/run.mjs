// Runs an ONNX artifact with onnxruntime-node on the golden pack of its folder, inside the verified
// ranges, and says by how many roundings it departs from float64.
//
//     npm ci && node run.mjs FOLDER [--artifact ID] [--case NAME] [--outputs FILE]
//
// Exits 1 where a case departs by more than 4 roundings, and where something is refused. --outputs
// writes the first output of the last case as raw numbers.

import { webcrypto } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parseArgs } from "node:util";

import * as ort from "onnxruntime-node";

import { check, opened, Refused, verified } from "../verify.mjs";
import { conclusive, GoldenPack, MOST, multiple } from "./golden.mjs";

globalThis.crypto ??= webcrypto; // Node.js 18 has it under this name alone

const { values: asked, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    artifact: { type: "string" },
    case: { type: "string" },
    outputs: { type: "string" },
  },
});

async function main([folder]) {
  if (folder === undefined || !existsSync(join(folder, "linattn_manifest.json"))) {
    throw new Refused(
      `${folder} holds no linattn_manifest.json; give what linattn-export build wrote`,
    );
  }
  const read = (path) => readFile(join(folder, path));
  const { about, bytes } = await opened(read, ({ id }) => id === (asked.artifact ?? id));
  const pack = new GoldenPack(await read(about.reference));
  const inside = (axis, size) => {
    const [low, high] = verified(about, axis);
    return low <= size && size <= high;
  };
  const cases = pack.cases
    .filter(conclusive)
    .filter((known) =>
      asked.case === undefined
        ? inside("batch", known.batch) && inside("sequence", known.sequence)
        : known.name === asked.case,
    );
  if (cases.length === 0) {
    const known = pack.cases.map(({ name }) => name).join(", ");
    throw new Refused(`no case ${asked.case ?? "in the verified ranges"}; the pack has: ${known}`);
  }
  const session = await ort.InferenceSession.create(bytes, { executionProviders: ["cpu"] });
  const [{ name }] = about.outputs;
  let worst = 0;
  for (const known of cases) {
    const inputs = pack.tensors(known, "input");
    const feeds = Object.fromEntries(
      Object.entries(inputs).map(([input, { type, data, dims }]) => [
        input,
        new ort.Tensor(type, data, dims),
      ]),
    );
    check(about, feeds);
    const { [name]: output } = await session.run(feeds);
    const found = multiple(output, pack.tensors(known, "output")[name], known);
    if (found > MOST) console.log(`${known.name}: ${found.toFixed(3)}x`);
    worst = Math.max(worst, found);
    if (asked.outputs !== undefined) await writeFile(asked.outputs, output.data);
  }
  console.log(
    `${about.id}: ${cases.length} cases, at most ${worst.toFixed(3)}x the rounding of an input, ` +
      `${MOST}x allowed`,
  );
  return worst <= MOST;
}

try {
  process.exitCode = (await main(positionals)) ? 0 : 1;
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  console.error(`refused: ${error.message}`);
  process.exitCode = 1;
}
