// One person, one bit, from Node.js 20 without packages. The protocol: docs/survey-protocol.md.
//   node survey_client.mjs LINK EPSILON VALUE FILE [--confirmed]   answers, at most at the EPSILON you were told; FILE remembers the one answer
//   node survey_client.mjs --vectors vectors.json                  checks the mechanism against the test vectors
import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";

const WEAKEST = 18445906630844105940n; // epsilon 10: above it an answer hides too little

function readThreshold(text) {
  const threshold = /^\d{19,20}$/.test(text) ? BigInt(text) : 0n;
  if (threshold <= 1n << 63n || threshold > WEAKEST) throw new Error("the survey's threshold hides too little");
  return threshold;
}

// The truth where the coin, uniform on 0 ... 2^64 - 1, falls below the threshold; otherwise its opposite.
const randomized = (truth, coin, threshold) => coin < threshold === truth;

// The same request again until the survey says something final.
async function request(url, body) {
  for (let seconds = 1; ; seconds = Math.min(2 * seconds, 30)) {
    // A yes is as long as a no; a code follows no redirect.
    const post = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body).padEnd(120) };
    const reply = await fetch(url, { redirect: "error", ...post }).catch(() => ({ status: 599 }));
    if (reply.status === 200) return reply.json();
    if (reply.status < 500 && ![408, 429].includes(reply.status)) throw new Error(`the survey refuses: status ${reply.status}`);
    const wait = Math.min(Number(reply.headers?.get("Retry-After")) || seconds, 60);
    await new Promise((done) => setTimeout(done, 1000 * wait));
  }
}

async function answer(link, epsilon, value, file, confirmed) {
  const [address, code] = link.split(/#c=|&/);
  if (!/^https:|^http:\/\/(127\.0\.0\.1|localhost)[:/]/.test(address) || !/^[\w-]{22}$/.test(code)) throw new Error("not a link of a survey");
  if (Number.isNaN(value)) throw new Error("the value is missing");
  if (!existsSync(file)) {
    const { survey, threshold, step } = await request(`${address}survey.json`);
    // A dishonest survey could ask this device alone for nearly the truth.
    if (!(Number(readThreshold(threshold)) / 2 ** 64 <= 1 / (1 + Math.exp(-epsilon)) + 1e-12)) throw new Error(`the survey asks for more than epsilon ${epsilon}`);
    if (step && Math.abs(value / step - Math.round(value / step)) > 1e-6) throw new Error(`this survey takes multiples of ${step} only`);
    const question = await request(`${address}question`, { code, visit: randomBytes(8).toString("hex") });
    if (question.survey !== survey || !Number.isFinite(Number(question.query))) throw new Error("not a question of this survey");
    if (question.handed_before && !confirmed) throw new Error("the question was fetched before, perhaps on another device: --confirmed if not answered there");
    const answer = randomized(value > Number(question.query), randomBytes(8).readBigUInt64LE(), readThreshold(threshold));
    const handle = openSync(file, "wx", 0o600); // fails where another process was first: one coin per file
    writeSync(handle, JSON.stringify({ address, code, round: question.round, answer }));
    fsyncSync(handle), closeSync(handle); // on the disk before it leaves
  }
  const stored = JSON.parse(readFileSync(file, "utf8"));
  if (stored.code !== code || stored.address !== address) throw new Error("this file holds the answer to another code; it never answers twice");
  const { counted } = await request(`${address}answer`, { code, round: stored.round, answer: stored.answer });
  return `sent: ${stored.answer ? "yes" : "no"}; ${counted ? "counted" : "too late: spent and not counted"}`;
}

const [first, second, ...others] = process.argv.slice(2);
if (first === "--vectors") {
  const { answers } = JSON.parse(readFileSync(second, "utf8"));
  const wrong = answers.filter((one) => randomized(Number(one.value) > Number(one.query), BigInt(one.coin), readThreshold(one.threshold)) !== one.answer);
  console.log(`${answers.length} vectors, ${wrong.length} wrong`);
  process.exitCode = wrong.length ? 1 : 0;
} else console.log(await answer(first, Number(second), others[0]?.trim() ? Number(others[0]) : NaN, others[1], others.includes("--confirmed")));
