// Keeps a page of numbers up to date: fetches the page that the meta element `from` names, and puts its content in place.
// The organiser's token stands in the address's fragment, which no request carries, and goes into a header.
const from = document.querySelector("meta[name=from]").content;
const token = new URLSearchParams(location.hash.slice(1)).get("t");
const SECONDS = 15;

function trouble(text) {
  document.getElementById("trouble").textContent = text;
}

async function refresh() {
  try {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const reply = await fetch(from, { headers, cache: "no-store", credentials: "omit", redirect: "error" });
    if (reply.status === 401) {
      return trouble("The token is missing or wrong. Open the address that “privatile survey init” printed: it ends in #t=TOKEN.");
    }
    if (!reply.ok) throw new Error(reply.status);
    const shown = new DOMParser().parseFromString(await reply.text(), "text/html");
    const [old, fresh] = [document, shown].map((page) => page.getElementById("content"));
    // Whoever is reading or selecting is not disturbed where nothing has changed.
    if (fresh.innerHTML !== old.innerHTML) old.replaceWith(fresh);
    document.title = shown.title;
    trouble("");
  } catch {
    trouble(document.querySelector("meta[name=trouble]").content);
  }
  setTimeout(refresh, 1000 * SECONDS);
}

addEventListener("hashchange", () => location.reload());
refresh();
