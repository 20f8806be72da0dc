// The answering page. The number lives in the input field and in a variable of `send`, and in nothing else.
import { drawCoin, liesPer100, readNumber, readQuery, readThreshold, respond } from "./mechanism.js";

const $ = (id) => document.getElementById(id);
const link = new URLSearchParams(location.hash.slice(1));
const code = link.get("c") ?? "";
const budget = Number(link.get("e")); // the epsilon that the letter or card states
const confirmed = new Set();
const LANGUAGES = ["en", "de", "fr"];
const UNSTATED = "not stated"; // what `asked_by` says where nobody has said who asks
const CODE = /^[A-Za-z0-9_-]{21}[AQgw]$/;
let words, locale, facts, values, db, record, status, error;

// Words

const number = (value) => new Intl.NumberFormat(locale, { maximumSignificantDigits: 12 }).format(value);
const inUnit = (value) => number(value) + (facts.unit ? ` ${facts.unit}` : "");
const fill = (key, more) =>
  (words?.[key] ?? "").replace(/\{(\w+)\}/g, (_, name) => ({ ...values, ...more })[name] ?? "");

// A live region speaks when it is written to: only what is new is written.
const put = (element, text = "") => element.textContent === text || (element.textContent = text);

function draw() {
  if (!words) return;
  document.documentElement.lang = locale;
  if (facts) {
    const threshold = readThreshold(record ? record.threshold : facts.threshold);
    const [low, high] = facts.range;
    const lies = threshold && +liesPer100(threshold).toPrecision(2);
    values = { truth: number(100 - lies), sure: words[lies < 5 ? "weak" : "sure"], value: facts.value, asker: facts.asked_by, step: number(facts.step ?? 1), low: number(low), high: inUnit(high), lies: number(lies) };
    put($("title"), (document.title = facts.title));
    put($("asker"), typeof facts.asked_by === "string" && facts.asked_by !== UNSTATED ? fill("asker") : "");
    put($("label"), fill("label"));
    put($("unit"), facts.unit);
  }
  for (const element of document.querySelectorAll("[data-t]")) put(element, fill(element.dataset.t));
  if (record) {
    put($("said"), fill(record.outcome ? "said" : "says", { bit: fill(record.answer ? "yes" : "no") }));
    put($("asked"), fill("asked", { query: inUnit(readQuery(record.query)) }));
  }
  if (status) put($("status"), fill(...status));
  put($("error"), error && fill(error));
}

async function speak(language) {
  locale = language;
  words = await patiently(`static/messages/${language}.json`);
  draw();
}

function say(...message) {
  status = message;
  draw();
}

function show(...parts) {
  for (const id of ["about", "form", "warning", "sent"]) $(id).hidden = !parts.includes(id);
  if (!parts.includes("form")) $("number").value = "";
}

// What this device remembers: one answer per survey and per code, written to the disk before it is sent

const opened = () =>
  new Promise((resolve, reject) => {
    const request = indexedDB.open("privatile", 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("answers", { keyPath: "survey" }).createIndex("code", "code", { unique: true });
      request.result.createObjectStore("asked");
    };
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });

const stored = (name, work, mode = "readonly") =>
  new Promise((resolve, reject) => {
    const transaction = db.transaction(name, mode, { durability: "strict" });
    const request = work(transaction.objectStore(name));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = () => reject(transaction.error);
  });

const find = async () =>
  (await stored("answers", (all) => all.index("code").get(code))) ?? stored("answers", (all) => all.get(facts.survey));

// Requests: repeated as they are until the survey says something final

const pause = (seconds) =>
  new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      $("again").hidden = true;
      resolve();
    };
    const timer = setTimeout(done, 1000 * seconds + Number(drawCoin() % 1000n));
    addEventListener("online", done);
    $("again").onclick = done;
    $("again").hidden = !words;
  });

async function patiently(path, body, isReadable = () => true) {
  for (let seconds = 1; ; seconds = Math.min(2 * seconds, 30)) {
    let trouble;
    let wait = seconds;
    try {
      const reply = await fetch(path, {
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
        signal: AbortSignal.timeout(20000),
        // A yes is as long as a no.
        ...(body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body).padEnd(120) }),
      });
      if ([408, 429, 503].includes(reply.status)) {
        trouble = "wait";
        wait = Math.min(Number(reply.headers.get("Retry-After")) || seconds, 60);
      } else if (reply.ok) {
        const content = await reply.json();
        if (isReadable(content)) return content;
      } else if (reply.status < 500 && body) return { status: reply.status };
    } catch {}
    say(trouble ?? (navigator.onLine ? "trouble" : "offline"));
    await pause(wait);
  }
}

// One answer

async function send(value) {
  const refuse = (key, more) => (show(), say(key, more));
  const mayGoOn = (key, more) =>
    new Promise((resolve) => {
      if (confirmed.has(key)) return resolve(true);
      put($("why"), fill(key, more));
      show("warning");
      say();
      $("warning").focus();
      $("continue").onclick = () => (confirmed.add(key), show("about"), resolve(true));
      $("stop").onclick = () => resolve(false);
    });
  show("about");
  record = await find();
  if (record) return deliver();
  const [other] = await stored("answers", (all) => all.getAll());
  if (other && !(await mayGoOn("other", other))) return refuse("stopped");
  say("asking");
  // By its mark the survey knows this device again where a reply was lost: that is no second device.
  const own = (await stored("asked", (all) => all.get(code))) ?? { visit: drawCoin().toString(36) };
  await stored("asked", (all) => all.put(own, code), "readwrite");
  const fetchQuestion = () =>
    patiently("question", { code, visit: own.visit }, (reply) => reply.survey === facts.survey && Number.isSafeInteger(reply.round) && readQuery(reply.query) !== undefined);
  let question = await fetchQuestion();
  if (question.handed_before === true && !own.asked) {
    if (!(await mayGoOn("handed"))) return refuse("stopped");
    say("asking");
    question = await fetchQuestion();
  }
  if (question.status && !(await find())) {
    const key = { 404: "unknown", 409: "spent", 410: "closed" }[question.status];
    return refuse(key ?? "refused", question);
  }
  await stored("asked", (all) => all.put({ ...own, asked: true }, code), "readwrite");
  // The coin is drawn here and nowhere else: once per code and survey, whatever the survey says.
  record = await navigator.locks.request("privatile draw", async () => {
    const earlier = await find();
    if (earlier || question.status) return earlier;
    // Another tab may have answered meanwhile, to another name of the same survey.
    if (!confirmed.has("other") && (await stored("answers", (all) => all.count()))) return;
    const { survey, threshold, title } = facts;
    const { round, query } = question;
    const answer = respond(value > readQuery(query), drawCoin(), readThreshold(threshold));
    const fresh = { survey, code, round, query, threshold, title, answer, at: new Date().toISOString().slice(0, 10) };
    await stored("answers", (all) => all.add(fresh), "readwrite");
    return fresh;
  });
  await (record ? deliver() : send(value));
}

async function deliver() {
  // A server can make a browser forget (Clear-Site-Data), but not change the address of an open page.
  link.set("answered", "");
  history.replaceState(null, "", `#${link}`);
  show("sent");
  say("sending");
  $("said").focus();
  const { survey, round, answer } = record;
  await navigator.locks.request("privatile send", async () => {
    record = (await stored("answers", (all) => all.get(survey))) ?? record;
    if (record.outcome) return;
    const reply = await patiently("answer", { code: record.code, round, answer }, (reply) => typeof reply.counted === "boolean");
    if (reply.status) return say("refused", reply);
    record.outcome = reply.counted ? "counted" : "late";
    await stored("answers", (all) => all.put(record), "readwrite");
  });
  if (record.outcome) say(record.code === code ? record.outcome : "twice");
}

// The page

function submit(event) {
  event.preventDefault();
  const read = readNumber($("number").value);
  const [low, high] = facts.range;
  const unusual = read.value < low || read.value > high;
  const steps = read.value / facts.step; // of values that were declared to be multiples; else it is no number
  const between = Math.abs(steps - Math.round(steps)) > 1e-6 && (facts.step === 1 ? "whole" : "step");
  error = (read.error ?? between) || (unusual && error !== "outside" ? "outside" : undefined);
  $("number").setAttribute("aria-invalid", Boolean(error));
  draw();
  if (error) return $("number").focus();
  send(read.value).catch(() => (show(), say("nostorage")));
}

function isAcceptable(found) {
  const { survey, title, value, range, threshold } = found ?? {};
  const texts = [survey, title, value].every((text) => typeof text === "string" && text.length <= 500);
  return texts && Array.isArray(range) && range.length === 2 && range.every(Number.isFinite) && readThreshold(threshold);
}

// The browser's language where there is a choice; the switch is there for the others.
async function offer(languages) {
  const wanted = [locale, ...navigator.languages.map((name) => name.slice(0, 2))];
  $("language").replaceChildren(
    ...languages.map((name) => new Option(new Intl.DisplayNames(name, { type: "language" }).of(name), name)),
  );
  $("language").onchange = () => speak($("language").value);
  $("language").value = wanted.find((name) => languages.includes(name)) ?? languages[0];
  if ($("language").value !== locale) await speak($("language").value);
}

async function begin() {
  await offer(LANGUAGES);
  if (!isSecureContext) return say("insecure");
  if (!navigator.locks || !globalThis.BigUint64Array) return say("old");
  if (!CODE.test(code) || !link.has("e")) return say("nocode");
  try {
    db = await opened();
    await stored("asked", (all) => all.put(1, ""), "readwrite");
  } catch {
    return say("nostorage");
  }
  const found = await patiently("survey.json");
  if (!isAcceptable(found)) return say("facts");
  // A dishonest survey could ask this device alone for nearly the truth.
  const least = 1 / (1 + Math.exp(budget));
  if (!(Number(found.threshold) / 2 ** 64 <= 1 - least + 1e-9)) {
    const [lies, stated] = [liesPer100(BigInt(found.threshold)), 100 * least].map((share) => number(+share.toPrecision(2)));
    return say("more", { lies, stated });
  }
  facts = found;
  const offered = LANGUAGES.filter((name) => facts.languages?.includes?.(name));
  if (offered.length) await offer(offered);
  record = await find();
  if (record) return deliver();
  if (link.has("answered")) return say("forgot");
  say();
  if (facts.state === "closed") return say("closed");
  // Some phones have no minus sign among the digits.
  if (facts.range[0] < 0) $("number").inputMode = "text";
  $("form").onsubmit = submit;
  $("number").oninput = () => ((error = undefined), draw());
  show("about", "form");
}

addEventListener("hashchange", () => location.reload());
addEventListener("pagehide", () => ($("number").value = ""));
begin();
