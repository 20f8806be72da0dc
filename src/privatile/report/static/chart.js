"use strict";
// One chart of a run: the estimate, its interval as a band, the question behind it, the search as a strip at the bottom.
// Drawn by uPlot; zoomed by dragging, by the buttons or by the keyboard. The visible range is written to the figure (data-from, data-to) and
// said aloud through the readout.
function privatileChart(figure, path, options) {
  const plot = figure.querySelector(".plot");
  const readout = figure.querySelector(".readout");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const format = options.format;
  const whole = new Intl.NumberFormat("en");
  let by = "round", chart = null, data = path;

  const none = () => new Array(data[by].length).fill(null);
  // The questions of the search go everywhere: they are drawn by `strip`, not as lines through the chart.
  const searched = () => data.round.filter((number) => number <= data.search).length;
  const after = (values) => values.map((value, i) => data.round[i] <= data.search ? null : value);
  const columns = () => [data[by], after(data.question_low), after(data.question_high), data.low, data.high,
    data.other_low || none(), data.other_high || none(), data.question_center || none(), data.estimate];

  // The height shows what matters: the last interval in sight, as far as it is bounded, and those before it that are not
  // far wider. An end of the stated range is no end that the answers gave.
  function lastInterval(end) {
    const low = data.low[end], high = data.high[end], middle = data.estimate[end];
    if (low == null) return null;
    const openLow = low <= data.range[0], openHigh = high >= data.range[1];
    const below = data.question_low[end], above = data.question_high[end];
    if (openLow && openHigh) return [below, above];
    // "14 or less" has no estimate: it is drawn to the end of the range.
    const ends = middle == null ? [low, high] : [openLow ? 2 * middle - high : low, openHigh ? 2 * middle - low : high];
    if (below === above) return ends;  // one question at a time
    // An interval far wider than the questions lie apart says little yet, and would flatten all else.
    const useful = 4 * (above - below);
    return [Math.max(ends[0], below - useful), Math.min(ends[1], above + useful)];
  }
  function heights(from, to) {
    const x = data[by];
    const values = (...keys) => keys.flatMap((key) => data[key].filter((value, i) => value != null && x[i] >= from && x[i] <= to));
    let end = x.length - 1;
    while (end > 0 && x[end] > to) end--;
    const last = lastInterval(end), reach = last ? last[1] - last[0] : 0;
    let seen = last ? values("low", "high", "estimate").filter((value) => value >= last[0] - reach && value <= last[1] + reach)
      : values("question_low", "question_high");
    if (!seen.length) seen = last || [0, 1];
    seen.sort((a, b) => a - b);
    const cut = Math.floor(seen.length * 0.03);
    let low = seen[cut], high = seen[seen.length - 1 - cut];
    if (last) {
      low = Math.min(low, last[0]);
      high = Math.max(high, last[1]);
      if (data.other_low && data.other_low[end] != null) {  // the interval beside it is seen too
        low = Math.min(low, Math.max(data.other_low[end], last[0] - 2 * reach));
        high = Math.max(high, Math.min(data.other_high[end], last[1] + 2 * reach));
      }
    }
    const room = (high - low) * 0.12 || Math.abs(high) * 0.01 || 1;
    const missing = data.whole ? Math.max(0, 3 - (high - low + 2 * room)) : 0;
    return [low - room - missing / 2, high + room + missing / 2];
  }

  // Whole numbers where the values are whole, or where the stated range is and enough of them are in sight.
  const WHOLE = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
  const PARTS = Array.from({ length: 28 }, (_, power) => [1, 2, 5].map((digit) => Number(`${digit}e${power - 14}`))).flat();
  const wholeTicks = (min, max) => data.whole || (data.range.every(Number.isInteger) && max - min >= 3);
  function tickText(value, apart) {
    const digits = Math.max(0, Math.min(12, -Math.floor(Math.log10(apart) + 1e-9)));
    return new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).format(value);
  }

  // The search: a thin strip at the bottom, its questions on a scale of their own; alone in sight, they get the chart.
  function strip(u) {
    const count = searched();
    if (!count) return;
    const { left, top, width, height } = u.bbox, ratio = window.devicePixelRatio || 1, c = u.ctx;
    const x = data[by], end = x[count - 1], alone = u.scales.x.max <= end;
    const asked = data.question_high.slice(0, count), lowest = Math.min(...asked), highest = Math.max(...asked);
    const tall = 16 * ratio, bottom = top + height;
    const at = (value) => alone ? u.valToPos(value, "y", true)
      : bottom - 2 * ratio - (tall - 4 * ratio) * (value - lowest) / (highest - lowest || 1);
    c.save();
    c.beginPath();
    c.rect(left, top, width, height);
    c.clip();
    if (!alone) {
      c.fillStyle = css("--walk") + "30";
      const from = u.valToPos(x[0], "x", true);
      c.fillRect(from, bottom - tall, u.valToPos(end, "x", true) - from, tall);
    }
    c.beginPath();
    asked.forEach((value, i) => c.lineTo(u.valToPos(x[i], "x", true), at(value)));
    c.strokeStyle = css("--walk");
    c.lineWidth = ratio;
    c.stroke();
    c.restore();
  }

  const name = (value) => value.length > 40 ? `${value.slice(0, 39)}…` : value;
  const showKey = () => {
    figure.querySelector('[data-key="search"]').hidden = !data.search;
    figure.querySelector('[data-key="estimate"]').hidden = data.estimate.every((value) => value == null);
  };

  function describe() {
    if (!chart) return;
    const { min, max } = chart.scales.x;
    const x = data[by];
    const from = Math.max(Math.ceil(min), x[0]), to = Math.min(Math.floor(max), x[x.length - 1]);
    figure.dataset.from = from;
    figure.dataset.to = to;
    let i = chart.cursor.idx ?? x.length - 1;
    while (chart.cursor.idx == null && i > 0 && x[i] > to) i--;
    const unit = by === "round" ? "round " : "record ";
    let text = `${unit}${whole.format(x[i])}: `;
    text += data.low[i] == null && data.estimate[i] == null ? `question ${format(data.question_high[i])}, search`
      : data.estimate[i] == null ? "no estimate"
      : `estimate ${data.whole && Number.isInteger(data.estimate[i]) ? whole.format(data.estimate[i]) : format(data.estimate[i])}`;
    if (data.low[i] != null) text += `, interval ${format(data.low[i], false)} … ${format(data.high[i], true)}`;
    if (data.other_low && data.other_low[i] != null) {
      const [low, high] = [data.other_low[i], data.other_high[i]];
      const own = privatileFormat(privatileWidth(low, high, data.estimate[i] ?? (low + high) / 2, data.range), data.range);
      text += `, beside it ${own(low, false)} … ${own(high, true)}`;
    }
    readout.textContent = `${text}   (shown: ${whole.format(from)} to ${whole.format(to)})`;
  }

  function build() {
    const keep = chart && figure.dataset.zoomed ? { ...chart.scales.x } : null;
    if (chart) chart.destroy();
    const axis = (extra) => ({
      stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line"), width: 1 },
      font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 24, ...extra,
    });
    const line = (colour, width, dash) => ({ stroke: css(colour), width, dash, points: { show: false } });
    const dots = (colour) => ({ stroke: css(colour), paths: () => null, points: { show: true, size: 5, width: 0, fill: css(colour) } });
    chart = new uPlot({
      width: Math.max(plot.clientWidth, 240), height: Math.min(440, Math.max(260, plot.clientWidth * 0.45)),
      legend: { show: false },
      cursor: { drag: { x: true, y: false, uni: 20 }, focus: { prox: -1 } },
      scales: {
        x: { time: false },
        y: { range: (u) => heights(u.scales.x.min ?? -Infinity, u.scales.x.max ?? Infinity) },
      },
      axes: [
        axis({ label: by === "round" ? "rounds" : "records that have answered", incrs: WHOLE, values: (u, at) => at.map((v) => whole.format(v)) }),
        axis({
          label: name(options.value), size: (u, texts) => 18 + 7 * Math.max(3, ...(texts || []).map((text) => text.length)),
          incrs: (u, index, min, max) => wholeTicks(min, max) ? WHOLE : PARTS,
          values: (u, at, index, space, apart) => at.map((v) => tickText(v, apart)),
        }),
      ],
      series: [{}, line("--walk", 1), line("--walk", 1), line("--blue", 1), line("--blue", 1),
        line("--blue", 1.4, [6, 4]), line("--blue", 1.4, [6, 4]), dots("--walk"), line("--blue", 3)],
      bands: [
        { series: [2, 1], fill: css("--walk") + "40" },
        { series: [4, 3], fill: css("--band") },
      ],
      hooks: { drawAxes: [strip], setScale: [(u, key) => { if (key === "x") describe(); }], setCursor: [describe],
        setSelect: [() => { figure.dataset.zoomed = "yes"; }] },
    }, columns(), plot);
    plot.querySelector("canvas").setAttribute("aria-hidden", "true");
    showKey();
    chart.over.addEventListener("dblclick", () => { delete figure.dataset.zoomed; });
    if (keep) chart.setScale("x", { min: keep.min, max: keep.max });
    describe();
  }

  function zoom(factor, shift) {
    const x = data[by], first = x[0], last = x[x.length - 1];
    let { min, max } = chart.scales.x;
    const width = Math.min((max - min) * factor, last - first);
    const middle = (min + max) / 2 + shift * (max - min);
    min = Math.max(first, middle - width / 2);
    max = Math.min(last, min + width);
    min = Math.max(first, max - width);
    if (max - min < 2 && last - first >= 2) return;
    if (max - min >= last - first) delete figure.dataset.zoomed; else figure.dataset.zoomed = "yes";
    chart.setScale("x", { min, max });
  }
  function reset() {
    delete figure.dataset.zoomed;
    const x = data[by];
    chart.setScale("x", { min: x[0], max: x[x.length - 1] });
  }
  const moves = { in: () => zoom(0.5, 0), out: () => zoom(2, 0), left: () => zoom(1, -0.25), right: () => zoom(1, 0.25), reset };
  for (const button of figure.querySelectorAll("button[data-move]"))
    button.addEventListener("click", () => moves[button.dataset.move]());
  for (const button of figure.querySelectorAll("button[data-by]"))
    button.addEventListener("click", () => {
      by = button.dataset.by;
      delete figure.dataset.zoomed;
      for (const other of figure.querySelectorAll("button[data-by]")) other.setAttribute("aria-pressed", String(other === button));
      build();
    });
  plot.addEventListener("keydown", (event) => {
    const move = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "reset", Escape: "reset" }[event.key];
    if (move && !event.ctrlKey && !event.metaKey && !event.altKey) { moves[move](); event.preventDefault(); }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", build);
  let waiting = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => { if (chart && Math.abs(chart.width - plot.clientWidth) > 2) build(); });
  }).observe(plot);
  build();
  return {
    update(next) {
      data = next;
      showKey();
      const zoomed = figure.dataset.zoomed ? { ...chart.scales.x } : null;
      chart.setData(columns(), false);
      if (zoomed) chart.setScale("x", { min: zoomed.min, max: zoomed.max }); else reset();
      describe();
    },
  };
}

// The width that decides how many digits are shown: twice the bounded side's where the other one is open.
function privatileWidth(low, high, estimate, range) {
  const openLow = low <= range[0], openHigh = high >= range[1];
  if (openLow === openHigh) return high - low;
  return 2 * (openLow ? high - estimate : estimate - low) || high - low;
}

// Numbers with as many digits as the interval deserves; an end of one is rounded outward (up: true, or false). An end
// of the stated range is shown as it is, and every other end with as many digits as show it inside: `outward` in Python.
function privatileFormat(width, range = [-Infinity, Infinity]) {
  if (!(width > 0 && isFinite(width))) {
    const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 7 });
    return (value) => value == null ? "–" : short.format(value);
  }
  const wanted = 1 - Math.floor(Math.log10(width));
  const whole = (value) => {
    const digits = Number(value.toPrecision(15)) === value ? 15 : 17;
    return new Intl.NumberFormat("en", { maximumSignificantDigits: digits }).format(value);
  };
  const nearest = (value, digits) => {
    const unit = 10 ** -digits;
    return digits < 0 ? Math.round(value / unit) * unit : Number(value.toFixed(Math.min(digits, 100)));
  };
  const outward = (value, digits, up) => {
    const unit = 10 ** -digits, rounded = nearest(value, digits);
    if (up === true && rounded < value) return nearest(rounded + unit, digits);
    if (up === false && rounded > value) return nearest(rounded - unit, digits);
    return rounded;
  };
  return (value, up) => {
    if (value == null) return "–";
    let digits = wanted, rounded = outward(value, digits, up);
    if (up !== undefined) {
      if (value <= range[0] || value >= range[1]) return whole(value);
      for (; !(range[0] < rounded && rounded < range[1]); rounded = outward(value, digits, up)) {
        if (++digits > wanted + 20) return whole(range[up ? 1 : 0]);
      }
    }
    const shown = Math.max(0, Math.min(digits, 12));
    return new Intl.NumberFormat("en", { minimumFractionDigits: shown, maximumFractionDigits: shown }).format(rounded);
  };
}
