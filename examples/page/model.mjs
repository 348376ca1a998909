// A text classifier over bytes in onnxruntime-web, inside the verified ranges. To be copied together
// with ../verify.mjs.

import * as ort from "./ort/ort.wasm.min.mjs";
import { check, opened, Refused, verified } from "./verify.mjs";

ort.env.wasm.wasmPaths = new URL("./ort/", import.meta.url).href;
ort.env.wasm.numThreads = 1; // more need a page that is isolated from other origins

const TOKENS = "tokens";
const MASK = "attention_mask";

export class Classifier {
  /** Downloads, compares and starts the dynamic ONNX file of `model` below the address `base`. */
  static async open(base, model) {
    const read = async (path) => {
      const answer = await fetch(new URL(path, base), { cache: "no-cache" });
      if (!answer.ok) throw new Refused(`${path}: ${answer.status} ${answer.statusText}`);
      return new Uint8Array(await answer.arrayBuffer());
    };
    const { about, bytes } = await opened(
      read,
      (artifact) => artifact.model === model && artifact.variant === "dynamic",
    );
    const [classes] = about.outputs[0].shape.slice(-1);
    if (about.labels?.length !== classes) {
      throw new Refused(`${about.id} has ${classes} outputs and ${about.labels?.length} labels`);
    }
    const session = await ort.InferenceSession.create(bytes, { executionProviders: ["wasm"] });
    return new Classifier(about, session);
  }

  constructor(about, session) {
    this.about = about;
    this.session = session;
    [this.shortest, this.longest] = verified(about, "sequence");
  }

  /** Logits of one text, a Uint8Array of UTF-8, as a Float32Array in the order of the labels. */
  async logits(text) {
    const length = Math.max(text.length, this.shortest);
    const tokens = new BigInt64Array(length);
    const mask = new Uint8Array(length);
    text.forEach((byte, place) => {
      tokens[place] = BigInt(byte);
      mask[place] = 1;
    });
    const dims = [1, length];
    const feeds = { [TOKENS]: new ort.Tensor("int64", tokens, dims) };
    if (this.about.inputs.some(({ name }) => name === MASK)) {
      feeds[MASK] = new ort.Tensor("bool", mask, dims);
    }
    check(this.about, feeds);
    const outputs = await this.session.run(feeds);
    return outputs[this.about.outputs[0].name].data;
  }

  /** `[{label, probability}]`, the likeliest first. */
  async classify(text) {
    const logits = await this.logits(text);
    const most = Math.max(...logits);
    const shares = Array.from(logits, (logit) => Math.exp(logit - most));
    const total = shares.reduce((sum, share) => sum + share, 0);
    return shares
      .map((share, place) => ({ label: this.about.labels[place], probability: share / total }))
      .sort((one, other) => other.probability - one.probability);
  }
}
