// Golden packs: inputs, float64 outputs, and what rounding costs on each (safetensors).

const KINDS = {
  F64: [Float64Array, "float64"],
  F32: [Float32Array, "float32"],
  I64: [BigInt64Array, "int64"],
  BOOL: [Uint8Array, "bool"],
};
const SENSITIVITY_FACTOR = 3; // the constants of linattn-check's verdict
const INCONCLUSIVE = 0.05; // rounding alone moves such an output by 5 %
export const MOST = 4;

/** Tensors are read when asked for: 8 bytes with the length of the header, the header, the data. */
export class GoldenPack {
  constructor(file) {
    this.bytes = new Uint8Array(file.buffer, file.byteOffset, file.byteLength); // slice() copies
    const view = new DataView(file.buffer, file.byteOffset, 8);
    const length = Number(view.getBigUint64(0, true));
    this.start = 8 + length;
    const header = JSON.parse(new TextDecoder().decode(file.subarray(8, this.start)));
    this.cases = JSON.parse(header.__metadata__["linattn.reference"]).cases;
    delete header.__metadata__;
    this.header = header;
  }

  /** `{name: {type, data, dims}}` of a case; `kind` is "input" or "output". */
  tensors(about, kind) {
    const prefix = `${about.stored}/${kind}/`;
    const found = Object.keys(this.header).filter((key) => key.startsWith(prefix));
    return Object.fromEntries(
      found.map((key) => [key.slice(prefix.length), this.#read(key, about.batch)]),
    );
  }

  // A case of more sequences than are stored runs them over and over.
  #read(key, batch) {
    const {
      dtype,
      shape,
      data_offsets: [begin, end],
    } = this.header[key];
    const [Kind, type] = KINDS[dtype];
    const stored = new Kind(this.bytes.slice(this.start + begin, this.start + end).buffer);
    const size = stored.length / shape[0];
    const data = new Kind(batch * size);
    for (let row = 0; row < batch; row++) {
      const from = (row % shape[0]) * size;
      data.set(stored.subarray(from, from + size), row * size);
    }
    return { type, data, dims: [batch, ...shape.slice(1)] };
  }
}

/** What rounding costs on a case, by "row" or "whole"; infinite numbers are stored as text. */
function yardstick({ eager_error: eager, sensitivity }, part) {
  return Math.max(Number(eager[part]), SENSITIVITY_FACTOR * Number(sensitivity[part]));
}

/** Whether anything can be judged on a case. */
export function conclusive(about) {
  return Math.max(yardstick(about, "row"), yardstick(about, "whole")) <= INCONCLUSIVE;
}

/** By how many roundings `actual` departs from `expected`: at most MOST is right. */
export function multiple(actual, expected, about) {
  if (actual.dims.join() !== expected.dims.join()) return Infinity;
  const width = expected.dims.at(-1);
  let largest = 0;
  let distance = 0;
  let size = 0;
  for (let start = 0; start < expected.data.length; start += width) {
    let apart = 0;
    let norm = 0;
    for (let place = start; place < start + width; place++) {
      apart += (Number(actual.data[place]) - expected.data[place]) ** 2;
      norm += expected.data[place] ** 2;
    }
    if (norm === 0) {
      if (apart !== 0) return Infinity; // a row of zeros is zero by definition
      continue;
    }
    largest = Math.max(largest, Math.sqrt(apart / norm));
    distance += apart;
    size += norm;
  }
  const whole = size === 0 ? 0 : Math.sqrt(distance / size);
  return Math.max(
    quotient(largest, yardstick(about, "row")),
    quotient(whole, yardstick(about, "whole")),
  );
}

function quotient(error, allowed) {
  if (Number.isNaN(error)) return Infinity;
  return error === 0 ? 0 : error / allowed;
}
