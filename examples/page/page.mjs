// Runs the classifier whenever the text changes, one run at a time, always on the newest text.

import { Classifier } from "./model.mjs";
import { Refused } from "./verify.mjs";

const SHOWN = 5;
const $ = (id) => document.getElementById(id);
const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });

let model;
let running = false;
let again = false;

function say(text, refused = false) {
  $("status").textContent = text;
  $("status").classList.toggle("refused", refused);
  $("text").setAttribute("aria-invalid", String(refused));
}

function draw(found) {
  const rows = found.slice(0, SHOWN).map(({ label, probability }) => {
    const row = $("row").content.firstElementChild.cloneNode(true);
    const percent = `${(100 * probability).toFixed(1)} %`;
    row.dataset.label = label;
    row.dataset.probability = probability;
    row.querySelector(".name").textContent = names.of(label);
    row.querySelector(".bar").style.setProperty("--share", `${100 * probability}%`);
    row.querySelector(".share").textContent = percent;
    return row;
  });
  $("results").replaceChildren(...rows);
}

async function answer() {
  const text = new TextEncoder().encode($("text").value);
  const size = `${text.length} of ${model.longest} bytes`;
  if (text.length === 0) {
    draw([]);
    return say("Type something, or choose a sentence below.");
  }
  if (text.length > model.longest) {
    draw([]);
    const over = text.length - model.longest;
    return say(
      `This text has ${text.length} bytes. The model was verified up to ${model.longest}, so it is ` +
        `not run on more: please take away ${over} ${over === 1 ? "byte" : "bytes"}.`,
      true,
    );
  }
  const start = performance.now();
  const found = await model.classify(text);
  const time = performance.now() - start;
  draw(found);
  say(`${size}, ${time.toFixed(1)} ms`);
}

async function changed() {
  again = true;
  if (running) return;
  running = true;
  try {
    while (again) {
      again = false;
      await answer();
    }
  } catch (error) {
    draw([]);
    say(error.message, true);
    if (!(error instanceof Refused)) throw error;
  } finally {
    running = false;
  }
}

async function start() {
  try {
    model = await Classifier.open(new URL("./model/", import.meta.url), "langid");
  } catch (error) {
    say(`The model cannot be used. ${error.message}`, true);
    if (error instanceof Refused) return;
    throw error;
  }
  const { id, bytes, labels, sha256 } = model.about;
  const size = `${(bytes / 1024).toFixed(0)} KiB`;
  $("about").textContent =
    `${id}: ${labels.length} languages, ${size}, verified for ${model.shortest} to ` +
    `${model.longest} bytes; SHA-256 ${sha256.slice(0, 12)}… is that of the manifest.`;
  $("text").disabled = false;
  $("text").addEventListener("input", changed);
  for (const button of document.querySelectorAll("#samples button")) {
    button.disabled = false;
    button.addEventListener("click", () => {
      $("text").value = button.textContent;
      changed();
    });
  }
  await changed();
}

await start();
