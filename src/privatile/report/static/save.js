"use strict";
(() => {
  const save = document.getElementById("save-json");
  if (save) save.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([document.getElementById("facts").textContent], { type: "application/json" }));
    link.download = "privatile-report.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });
})();
