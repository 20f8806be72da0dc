"use strict";
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  for (const figure of document.querySelectorAll("figure[data-level]")) {
    const path = facts.trajectories[Number(figure.dataset.level)];
    if (!path || path.round.length < 2) continue;
    const last = path.round.length - 1;
    const width = path.low[last] == null ? NaN : path.high[last] - path.low[last];
    privatileChart(figure, path, { format: privatileFormat(width) });
    figure.dataset.ready = "yes";
  }
  const save = document.getElementById("save-json");
  if (save) save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([document.getElementById("facts").textContent], { type: "application/json" }));
    link.download = "privatile-report.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
