"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  for (const figure of document.querySelectorAll("figure[data-level]")) {
    const path = facts.trajectories[Number(figure.dataset.level)];
    if (!path || path.round.length < 2) continue;
    const last = path.round.length - 1;
    const width = path.low[last] == null ? NaN : privatileWidth(path.low[last], path.high[last], path.estimate[last], path.range);
    privatileChart(figure, path, { format: privatileFormat(width, path.range), value: facts.value });
    figure.dataset.ready = "yes";
  }
})();
