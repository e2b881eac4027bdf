"use strict";
// Parts of pages are fetched again, forms that end something ask first, and the live tail follows.
// Without this script the pages work, and are refreshed by hand.

const main = document.getElementById("main");
const freshness = document.getElementById("freshness");
let lastSeen = Date.now();
let asking = false;
let pressed = false;

// What a refresh would take away from whoever reads or types; "" where it takes nothing.
function kept() {
  const marked = getSelection();
  if (!marked.isCollapsed && marked.containsNode(main, true)) return "while text is marked";
  const fields = [...main.querySelectorAll("input, textarea")];
  if (fields.some((each) => each.value !== each.defaultValue)) return "while a form is being filled";
  return "";
}

function busy() {
  const at = document.activeElement;
  const types = at && main.contains(at) && (at.tagName === "INPUT" || at.tagName === "TEXTAREA");
  return document.hidden || pressed || types || kept() !== "";
}

async function refresh() {
  if (asking || busy()) return;
  asking = true;
  try {
    const limit = AbortSignal.timeout(10000);
    const answer = await fetch(location.href, { headers: { "X-Part": "1" }, cache: "no-store", signal: limit });
    if (answer.status === 401) { location.href = "/login"; return; }
    if (!(answer.headers.get("content-type") || "").startsWith("text/html")) return;  // refused: too busy
    const html = await answer.text();
    if (busy()) return;
    keepPlace(() => { main.innerHTML = html; });
    lastSeen = Date.now();
  } catch (error) {
    // told by `tick`
  } finally {
    asking = false;
  }
}

// Focus and sideways scrolling stay where they were.
function keepPlace(change) {
  const every = [...main.querySelectorAll("a, button, [tabindex]")];
  const index = every.indexOf(document.activeElement);
  const scrolled = [...main.querySelectorAll(".wide")].map((each) => each.scrollLeft);
  change();
  main.querySelectorAll(".wide").forEach((each, i) => { each.scrollLeft = scrolled[i] || 0; });
  if (index >= 0) {
    const now = main.querySelectorAll("a, button, [tabindex]")[index];
    if (now) now.focus({ preventScroll: true });
  }
}

function tick() {
  const why = kept();
  if (busy()) lastSeen = Date.now();  // nothing was asked
  const late = Date.now() - lastSeen > 10000;
  freshness.textContent = late ? "The console does not answer" : (why && `Not refreshed ${why}`);
  freshness.className = late ? "stale" : "";
}

if (main.dataset.part) {
  setInterval(refresh, 1000 * Number(main.dataset.part));
  setInterval(tick, 1000);
  // A button that is replaced between press and release is not clicked.
  main.addEventListener("pointerdown", (event) => { pressed = event.button === 0; });
  for (const name of ["pointerup", "pointercancel"]) {
    addEventListener(name, () => setTimeout(() => { pressed = false; }, 0));
  }
}

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.ask;
  if (question && !confirm(question)) event.preventDefault();
});

document.addEventListener("click", async (event) => {
  if (!event.target.classList.contains("copy")) return;
  const text = event.target.previousElementSibling;
  try {
    await navigator.clipboard.writeText(text.textContent);
    event.target.textContent = "Copied";
  } catch (error) {  // there is no clipboard without https, or it is not allowed
    getSelection().selectAllChildren(text);
    event.target.textContent = "Selected: copy it";
  }
});

// --- the live tail ---

const ROWS_MAX = 300;
const form = document.getElementById("tail");

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function shown(value) {
  return value === null || value === undefined ? "NULL" : String(value);
}

function columns(row) {
  const cell = element("td");
  if (row.sql) cell.append(element("code", row.sql));
  const image = row.after || row.before || {};
  for (const name of Object.keys(image)) {
    const changed = row.changed.includes(name);
    const part = element("span", undefined, changed ? "cell changed" : "cell");
    part.append(element("span", name + " ", "name"));
    if (changed) part.append(element("del", shown(row.before[name])));
    part.append(element(changed ? "ins" : "span", shown(image[name])));
    cell.append(part);
  }
  return cell;
}

function line(row) {
  const made = element("tr");
  made.append(element("td", String(row.time || "").slice(0, 19)), element("td", row.table),
    element("td", row.type, row.type), columns(row));
  const place = element("td");
  place.append(element("code", row.at));
  made.append(place);
  return made;
}

// An event source does not say why it was refused.
async function refusal(url) {
  const left = new AbortController();
  try {
    const answer = await fetch(url, { signal: left.signal });
    if (answer.ok) return "The connection ended: follow again";
    return (await answer.json()).message;
  } catch (error) {
    return "The console does not answer";
  } finally {
    left.abort();
  }
}

function follow() {
  const rows = document.getElementById("rows");
  const state = document.getElementById("tail-state");
  const pause = document.getElementById("pause");
  let source = null;
  let count = 0;
  let skipped = 0;

  function stop(text) {
    if (source) source.close();
    source = null;
    pause.disabled = true;
    state.textContent = text;
  }

  function tell() {
    state.textContent = `Following: ${count} rows` + (skipped ? `, ${skipped} more not shown` : "");
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    stop("");
    rows.replaceChildren();
    count = skipped = 0;
    const query = new URLSearchParams(new FormData(form));
    const url = form.dataset.events + "?" + query;
    source = new EventSource(url);
    pause.disabled = false;
    state.textContent = "Connecting …";
    source.onopen = tell;
    source.onerror = () => {
      if (source && source.readyState === EventSource.CLOSED) refusal(url).then(stop);
      else state.textContent = "Connecting again …";
    };
    source.addEventListener("rows", (message) => {
      const found = JSON.parse(message.data);
      rows.prepend(...found.rows.map(line).reverse());
      while (rows.children.length > ROWS_MAX) rows.lastChild.remove();
      count += found.rows.length;
      skipped += found.skipped;
      tell();
    });
    source.addEventListener("notice", (message) => { state.textContent = JSON.parse(message.data).message; });
    source.addEventListener("problem", (message) => stop(JSON.parse(message.data).message));
    source.addEventListener("end", () => stop("The files are at their end"));
  });
  pause.addEventListener("click", () => stop(`Paused after ${count} rows`));
  window.addEventListener("pagehide", () => stop(""));
}

if (form) follow();
