"use strict";
(() => {
  const at = (id) => document.getElementById(id);
  const whole = new Intl.NumberFormat("en");
  const say = (id, text) => { const node = at(id); if (node.textContent !== text) node.textContent = text; };
  let state = null, shown = 0, chosen = null, chart = null, skew = 0, heardAt = 0, format = privatileFormat(NaN);

  function span(seconds) {
    if (seconds == null || !isFinite(seconds)) return "–";
    if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
  }
  const now = () => Date.now() / 1000 + skew;

  function status(kind, tone, text) {
    const pill = at("status");
    Object.assign(pill.dataset, { status: kind, tone });
    if (pill.textContent !== text) pill.textContent = text;
  }

  // A text whose parts between backticks are commands.
  function withCommands(node, text) {
    if (node.dataset.text === text) return;
    node.dataset.text = text;
    node.replaceChildren(...text.split("`").map((part, i) => {
      if (i % 2 === 0) return part;
      const code = document.createElement("code");
      code.textContent = part;
      return code;
    }));
  }

  // Why what is shown may be old: the command has ended, or the connection is lost.
  function notice(text) {
    const box = at("notice");
    box.hidden = !text;
    withCommands(box, text);
  }
  const clockTime = (seconds) => new Date(seconds * 1000).toLocaleTimeString();

  const current = () => state.levels[Math.min(shown, state.levels.length - 1)];
  // While the run goes on the interval that is valid at every look, then its result; unless somebody chose.
  const kindOf = (level) => chosen || level.shown || "anytime";
  // The estimate with the digits that the interval in sight deserves; or, in words, why there is none.
  const headlineOf = (level) => level.headline == null ? "–" : level.located ? intervalOf(level).estimate : level.headline;
  function intervalOf(level) { return level[kindOf(level)] || level.fixed || level.anytime; }

  function pathOf(level) {
    const path = level.path;
    if (kindOf(level) === "anytime" && path.anytime_low) return { ...path, low: path.anytime_low, high: path.anytime_high };
    return path;
  }

  function showLevel() {
    const level = current();
    const interval = intervalOf(level);
    format = privatileFormat(interval ? interval.width : NaN, level.path.range);
    say("estimand", level.estimand || `The ${level.level} quantile of ${state.value}`);
    const headline = headlineOf(level);
    say("estimate", headline);
    say("interval", interval ? `${state.percent} interval ${level.values_left || interval.text}, ${interval.condition}` : "no interval yet");
    say("left-note", level.undeclared ? `If it is not so: ${level.undeclared}` : "");
    say("other", level.other ? `${level.other.text}, ${level.other.condition}` : level.contradiction);
    const has = level.anytime != null, kind = kindOf(level);
    document.getElementById("choice").hidden = level.always || !interval;  // nothing to choose
    for (const [name, text] of [["beside", level.other ? level.other.name : ""], ["center", level.straddles ? " " : ""]]) {
      const key = document.querySelector(`[data-key="${name}"]`);
      key.hidden = !text;
      if (name === "beside") key.querySelector("span").textContent = text;
    }
    document.querySelector('[data-key="walk"]').textContent = level.straddles ? "low and high question" : "question";
    for (const button of document.querySelectorAll("button[data-interval]"))
      button.setAttribute("aria-pressed", String(button.dataset.interval === (has ? kind : "fixed")));
    const anytime = kind === "anytime" && has;
    say("interval-note", level.always ? (state.is_over ? "" : "valid however often you look") : state.is_over || anytime
      ? (anytime ? "valid however often you look" : "")
      : !interval ? "" : kind === "anytime" && !has ? "not available yet for this run; the fixed-time interval holds at the planned end only"
      : "holds at the planned end only: do not stop early because of it");
    const path = pathOf(level);
    if (chart) chart.update(path);
    else if (path.round.length >= 2) {
      const figure = document.querySelector("figure.chart");
      figure.hidden = false;
      at("no-chart").hidden = true;
      chart = privatileChart(figure, path, { format: (value, up) => format(value, up), value: state.value });
      figure.dataset.ready = "yes";
    }
    document.title = level.headline == null ? "privatile" : `${headline} · privatile`;
    // While it runs, the bar above says that it is unfinished.
    const told = level.caveats.filter(({ code }) => code !== "unfinished" || !state.goes_on);
    list("caveats", told.map(({ status, title, text }) =>
      [status, status === "worry" ? "! look here" : "• note", title, text]), isOver() ? "None to act on." : "Nothing to say yet.");
    target();
  }

  function target() {
    if (!state || state.waiting) return;
    const level = current();
    const interval = intervalOf(level), wanted = Number(at("target").value);
    if (!interval || !(wanted > 0)) { say("target-answer", "in the data's units; the interval narrows with the root of the rounds"); return; }
    const width = interval.high - interval.low;
    if (width <= wanted) { say("target-answer", "it is that narrow now"); return; }
    const more = Math.ceil(state.done * ((width / wanted) ** 2 - 1));
    const left = state.planned - state.done;
    let text = `about ${whole.format(more)} more rounds`;
    if (state.rate) text += `, ${span(more / state.rate)}`;
    if (state.planned && more > left) text += `; more than the ${whole.format(left)} that are left`;
    say("target-answer", text);
  }

  function clock() {
    if (!state || state.waiting) return;
    say("age", span(state.last_round_at == null ? null : now() - state.last_round_at));
    for (const cell of document.querySelectorAll("td[data-at]"))
      cell.textContent = cell.dataset.at ? `${span(now() - Number(cell.dataset.at))} ago` : "never";
  }

  const heads = [...document.querySelectorAll("#clients-head th")].map((head) => head.textContent);
  function row(client) {
    const line = document.createElement("tr");
    const cell = (text, name = "td") => {
      const node = document.createElement(name);
      node.textContent = text;
      if (name === "td") node.dataset.label = heads[line.children.length];
      line.append(node);
      return node;
    };
    cell(client.name, "th").scope = "row";
    const mark = cell(client.text);
    mark.className = "state";
    Object.assign(mark.dataset, { state: client.state, tone: client.tone });
    cell("").dataset.at = client.heard ?? client.last_answer ?? "";
    cell(whole.format(client.answered));
    cell(whole.format(client.missed));
    cell(whole.format(client.asked) + (client.records == null ? "" : ` of ${whole.format(client.records)}`));
    cell(client.asked === 0 ? "0" : client.epsilon == null ? "∞" : String(Number(client.epsilon.toPrecision(4))));
    cell(client.weight.toFixed(4));
    cell(client.lying_rank == null ? "no bound" : `±${(Math.ceil(client.lying_rank * 1000) / 1000).toFixed(3)} in rank`);
    return line;
  }

  // A list of remarks, built anew only when it has changed; each item is [class, mark, title, text].
  function list(id, items, none) {
    const key = JSON.stringify([items, none]), node = at(id);
    if (node.dataset.key === key) return;
    node.dataset.key = key;
    // The same remarks with other words, such as "2 min ago": the items stay, so that they are not read aloud again.
    const kinds = JSON.stringify(items.map(([kind, mark, title]) => [kind, mark, title]));
    if (items.length && node.dataset.kinds === kinds && items.every(([, , , text], i) => Boolean(text) === Boolean(node.children[i].querySelector("p")))) {
      items.forEach(([, , , text], i) => { if (text) withCommands(node.children[i].querySelector("p"), text); });
      return;
    }
    node.dataset.kinds = kinds;
    node.replaceChildren(...items.map(([kind, mark, title, text]) => {
      const item = document.createElement("li");
      item.className = kind;
      for (const [name, content] of [["span", mark], ["b", title], ["p", text]]) {
        if (!content) continue;
        const part = document.createElement(name);
        withCommands(part, content);
        if (name === "span") part.className = "mark";
        item.append(part);
      }
      return item;
    }));
    if (!items.length && none) { const item = document.createElement("li"); item.className = "soft"; item.textContent = none; node.append(item); }
  }

  function alarms() {
    list("alarms", state.alarms.map((alarm) => ["worry", "! look here", alarm.title, alarm.text]), "");
    list("events", (state.events || []).map((event) => {
      const where = `${event.client ? ` · ${event.client}` : ""}${event.round ? ` · round ${event.round}` : ""}`;
      return [event.tone, event.kind, "", `${clockTime(event.at)}${where}: ${event.text}`];
    }), "Nothing but rounds.");
  }

  let lastAloud = 0;
  function aloud() {
    if (Date.now() - lastAloud < 20000 && state.goes_on) return;
    lastAloud = Date.now();
    const level = current(), interval = intervalOf(level);
    if (level.headline == null) return;
    say("aloud", `Round ${state.done}${state.planned ? ` of ${state.planned}` : ""}, ${state.status}. Estimate ${headlineOf(level)}`
      + (interval ? `, interval ${interval.text.replace(" … ", " to ")}.` : "."));
  }

  function show(next) {
    state = next;
    heardAt = Date.now() / 1000;
    skew = next.now - Date.now() / 1000;
    const trouble = at("trouble");
    trouble.hidden = !next.trouble;
    trouble.textContent = next.trouble ? `The run's file could not be read: ${next.trouble}` : "";
    status(next.badge.kind, next.badge.tone, next.badge.text);
    notice(next.over ? `At ${clockTime(next.now)} ${next.over}. This is the last that it knew of the run; \`${next.again}\` shows it again.` : "");
    alarms();
    at("empty").hidden = !next.waiting;
    at("shown").hidden = next.waiting;
    at("waits").hidden = Boolean(next.trouble);
    if (next.waiting) { withCommands(at("waits-for"), next.waits_for); return; }
    for (const node of document.querySelectorAll("[data-live]")) node.hidden = isOver();  // of a run that goes on only
    say("chart-title", isOver() ? "How it got there" : "How it is going");
    say("run", next.run + (next.organization ? `, as ${next.organization} sees it` : "") + (next.simulated ? " · simulated" : ""));
    const choice = at("level"), choices = next.levels.map((level) => String(level.level));
    at("level-choice").hidden = choices.length < 2;
    if (choice.dataset.key !== choices.join()) {
      choice.replaceChildren(...choices.map((text, index) => new Option(text, index)));
      choice.dataset.key = choices.join();
    }
    const share = next.planned ? next.done / next.planned : 0;
    at("bar").style.width = `${100 * share}%`;
    at("progress").setAttribute("aria-valuenow", String(Math.round(100 * share)));
    say("rounds", whole.format(next.done) + (next.planned ? ` of ${whole.format(next.planned)}` : ""));
    say("rate", next.rate && next.goes_on ? next.rate.toPrecision(3) : "–");
    say("left", next.rate && next.planned ? span((next.planned - next.done) / next.rate) : "–");
    say("records", whole.format(next.records));
    const counts = next.clients.counts;
    say("alive", `${whole.format(counts.alive)} of ${whole.format(next.clients.all)}`);
    heads[2] = next.sign_of_life;
    document.querySelectorAll("#clients-head th")[2].textContent = heads[2];
    at("clients").replaceChildren(...next.clients.listed.map(row));
    const hidden = next.clients.all - next.clients.listed.length;
    say("clients-more", hidden > 0 ? `${whole.format(hidden)} more clients have answered and are not listed.` : "");
    if (next.until_width && !at("target").value) at("target").value = next.until_width;
    showLevel();
    clock();
    aloud();
  }

  for (const button of document.querySelectorAll("button[data-interval]"))
    button.addEventListener("click", () => { chosen = button.dataset.interval; if (state && !state.waiting) showLevel(); });
  at("level").addEventListener("change", () => { shown = Number(at("level").value); showLevel(); });
  at("target").addEventListener("input", target);
  setInterval(clock, 1000);

  const isOver = () => state != null && !state.waiting && state.is_over;

  function connect() {
    const source = new EventSource("events");
    source.addEventListener("state", (event) => { show(JSON.parse(event.data)); document.body.dataset.round = state.done ?? 0; });
    source.onerror = () => {
      if (isOver()) { source.close(); status(state.badge.kind, state.badge.tone, state.ended); return; }  // nothing more will come
      status("lost", "worry", state && state.over ? state.badge.text : "connection lost, trying again");
      if (state && !state.over) notice(`No connection since ${clockTime(heardAt)}: what is shown may be old. The page tries again by itself.`);
      if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(connect, 1000); }
    };
    source.onopen = () => { if (state && !state.over) notice(""); if (state) status(state.badge.kind, state.badge.tone, state.badge.text); };
  }
  at("all-runs").hidden = !/\/runs\/\d+\/$/.test(location.pathname);
  connect();
})();
