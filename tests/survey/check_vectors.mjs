// node tests/survey/check_vectors.mjs MECHANISM VECTORS: every case of the vectors against the page's own functions.
import { readFileSync } from "node:fs";

const [script, vectors] = process.argv.slice(2).map((path) => readFileSync(path, "utf8"));
const page = await import(`data:text/javascript,${encodeURIComponent(script)}`);
const wrong = [];
const cases = JSON.parse(vectors);
for (const one of cases.answers) {
  const threshold = page.readThreshold(one.threshold);
  const said = page.respond(Number(one.value) > page.readQuery(one.query), BigInt(one.coin), threshold);
  if (said !== one.answer) wrong.push(one);
}
for (const one of cases.thresholds) if ((page.readThreshold(one.threshold) !== undefined) !== one.accepted) wrong.push(one);
for (const one of cases.typed) {
  const read = page.readNumber(one.typed);
  if (!Object.is(read.value, one.value) || read.error !== one.error) wrong.push({ ...one, read });
}
console.log(JSON.stringify({ wrong, checked: cases.answers.length + cases.thresholds.length + cases.typed.length }));
