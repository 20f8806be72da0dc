"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  for (const figure of document.querySelectorAll("figure[data-level]")) {
    const path = facts.trajectories[Number(figure.dataset.level)];
    if (!path || path.round.length < 2) continue;
    privatileChart(figure, path, { format: privatileFormat(path.digits_width ?? NaN, path.range), value: facts.value });
    figure.dataset.ready = "yes";
  }
})();
