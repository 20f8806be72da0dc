// The organiser's page. The token stands in the address's fragment, which no request carries, and goes into a header.
const token = new URLSearchParams(location.hash.slice(1)).get("t") ?? "";
const SECONDS = 10;

function trouble(text) {
  const place = document.querySelector("[role=status]") ?? document.querySelector("main").appendChild(document.createElement("p"));
  place.setAttribute("role", "status");
  place.textContent = text;
}

async function refresh() {
  try {
    const reply = await fetch("organiser.html", {
      headers: { Authorization: `Bearer ${token}` }, cache: "no-store", credentials: "omit", redirect: "error",
    });
    if (reply.status === 401 || reply.status === 403) {
      return trouble("The token is missing or wrong. Open the address that “privatile survey init” printed: it ends in #t=TOKEN.");
    }
    if (!reply.ok) throw new Error(reply.status);
    const shown = new DOMParser().parseFromString(await reply.text(), "text/html").querySelector("main");
    if (shown.innerHTML !== document.querySelector("main").innerHTML) document.querySelector("main").replaceWith(shown);
  } catch {
    trouble("The survey cannot be reached at the moment. This page tries again by itself.");
  }
  setTimeout(refresh, 1000 * SECONDS);
}

addEventListener("hashchange", () => location.reload());
refresh();
