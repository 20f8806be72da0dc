// The device's part of the mechanism (privatile's core/mechanism.py), and how a typed number is read.
// Pure functions; vectors.json tests them in Python, in Node.js and in the browser.

const COINS = 1n << 64n;
const WEAKEST = 18445906630844105940n; // epsilon 10: above it hardly any answer is a lie, and this device refuses

// The threshold as an integer; undefined where it would hide too little or nothing can be learned.
export function readThreshold(text) {
  if (typeof text !== "string" || !/^\d{19,20}$/.test(text)) return undefined;
  const threshold = BigInt(text);
  return threshold > COINS / 2n && threshold <= WEAKEST ? threshold : undefined;
}

// The query of a question as a double, as Python reads it; undefined where it is no finite number.
export function readQuery(text) {
  if (typeof text !== "string" || !/^-?\d{1,400}(\.\d{1,400})?(e[-+]?\d{1,3})?$/i.test(text)) return undefined;
  return Number.isFinite(Number(text)) ? Number(text) : undefined;
}

// The truth if the coin, uniform on 0 ... 2^64 - 1, falls below the threshold; otherwise its opposite.
export const respond = (truth, coin, threshold) => coin < threshold === truth;

// One coin of the operating system.
export const drawCoin = () => crypto.getRandomValues(new BigUint64Array(1))[0];

// How often in 100 an answer is the opposite of the truth.
export const liesPer100 = (threshold) => Number(((COINS - threshold) * 100000n) / COINS) / 1000;

// A typed number: {value} or {error}. 1,234.5 and 1.234,5 and 1 234,5 are clear; 1,234 and 1.234 are not.
export function readNumber(typed) {
  const text = typed.trim().replace(/^[−–]/, "-").replace(/[\s’]/g, "'");
  if (!text) return { error: "empty" };
  const found = /^([-+]?)(\d{1,3}(?:(['.,])\d{3})(?:\3\d{3})*|\d+)(?:([.,])(\d+))?$/.exec(text);
  if (!found || text.length > 40) return { error: "form" };
  const [, sign, whole, separator, mark, decimals = ""] = found;
  if (separator && separator === mark) return { error: "form" };
  if (separator && separator !== "'" && !mark && whole.split(separator).length === 2) {
    if (!whole.startsWith("0")) return { error: "ambiguous" };
    return { value: Number(sign + whole.replace(",", ".")) };
  }
  return { value: Number(`${sign}${whole.replace(/['.,]/g, "")}.${decimals}0`) };
}
