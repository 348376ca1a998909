// What the manifest vouches for, in Node.js and in a browser: no dependencies, to be copied.
//
// `opened` reads the manifest and one ONNX file and compares the file's SHA-256; `check` refuses
// inputs whose names, types or sizes were not verified. Both throw `Refused`.

export class Refused extends Error {
  name = "Refused";
}

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/**
 * The entry of an artifact in the manifest, and the bytes of its file.
 *
 * @param {(path: string) => Promise<Uint8Array>} read gives the bytes of a file of the folder
 * @param {(artifact: object) => boolean} wanted chooses among the ONNX files
 */
export async function opened(read, wanted = () => true) {
  const manifest = JSON.parse(new TextDecoder().decode(await read("linattn_manifest.json")));
  if (manifest.schema_version.split(".")[0] !== "1") {
    throw new Refused(`manifest ${manifest.schema_version} is not 1.x, which this code reads`);
  }
  const files = manifest.artifacts.filter((artifact) => artifact.format === "onnx");
  const about = files.find(wanted);
  if (about === undefined) {
    const known = files.map((artifact) => artifact.id).join(", ");
    throw new Refused(`the folder has no such ONNX artifact; it has: ${known || "none"}`);
  }
  if (about.verdict !== "PASS") {
    throw new Refused(`${about.id} is ${about.verdict}, not PASS; linattn-check says why`);
  }
  const bytes = await read(about.path);
  const digest = hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
  if (digest !== about.sha256) {
    throw new Refused(
      `${about.path} has SHA-256 ${digest}, the manifest says ${about.sha256}; ` +
        "copy the folder again",
    );
  }
  return { about, bytes };
}

/** The smallest and the largest verified size of the axis "batch" or "sequence". */
export function verified(about, axis) {
  const range = about.axes.find((known) => known.name === axis)?.verified;
  if (!range) {
    throw new Refused(`no size of ${axis} was verified; run linattn-check on the folder`);
  }
  return range;
}

/** Compare `feeds`, tensors of onnxruntime by name, with what was verified. */
export function check(about, feeds) {
  const names = about.inputs.map((spec) => spec.name);
  const given = Object.keys(feeds);
  if ([...given].sort().join() !== [...names].sort().join()) {
    throw new Refused(`got inputs ${given.join(", ")}, expected ${names.join(", ")}`);
  }
  const seen = {};
  for (const { name, dtype, axes, values } of about.inputs) {
    const { type, dims, data } = feeds[name];
    const shape = `${name} has shape [${dims.join(", ")}]`;
    if (type !== dtype) throw new Refused(`${name} is ${type}, expected ${dtype}`);
    if (values && data.some((token) => token < values[0] || token > values[1])) {
      throw new Refused(
        `${name} was verified on ${values[0]} to ${values[1]} and holds others; a negative token ` +
          "would silently stand for one from the end of the vocabulary",
      );
    }
    if (dims.length !== axes.length) {
      throw new Refused(`${shape}, expected [${axes.join(", ")}]`);
    }
    axes.forEach((axis, place) => {
      const size = dims[place];
      if (typeof axis === "number") {
        if (size !== axis) throw new Refused(`${shape}, expected [${axes.join(", ")}]`);
        return;
      }
      const [low, high] = verified(about, axis);
      if (size < low || size > high) {
        const flag = { batch: "--batch", sequence: "--dynamic" }[axis];
        const range = `${Math.min(low, size)}:${Math.max(high, size)}`;
        throw new Refused(
          `${axis} is ${size}, but ${about.id} was verified from ${low} to ${high}; ` +
            `give another size, or build with ${flag} ${range}`,
        );
      }
      seen[axis] ??= { size, name };
      if (seen[axis].size !== size) {
        throw new Refused(`${shape}: ${axis} is ${seen[axis].size} in ${seen[axis].name}`);
      }
    });
  }
}
