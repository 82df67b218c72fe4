// The console's only script: it looks again, follows a log, and takes keys. Every page works without
// it. What comes from the broker is put into the page as text, or parsed as a page of the console.

const ROWS_MAX = 500;
const state = document.getElementById("state");
const seconds = Number(document.body.dataset.refreshS);
const rows = () => [...document.querySelectorAll("main tbody tr")];
const own = (path) => typeof path === "string" && path.startsWith("/ui/");

// --- looking again ---

let timer = 0;
let paused = false;
let looking = false;

const say = (text) => { state.textContent = text; };
const clock = () => new Date().toLocaleTimeString([], { hour12: false });

function busy() {
  const at = document.activeElement;
  const typing = at && at.closest("main form");
  return typing || !document.getSelection().isCollapsed;
}

function focused() {
  const at = document.activeElement;
  if (!at || !at.closest("main .sections")) return () => {};
  const row = rows().indexOf(at.closest("tr"));
  const region = at.closest("[role=region]");
  return () => {
    if (row >= 0) rows()[row]?.focus();
    else if (region) document.querySelector(`[aria-labelledby=${region.getAttribute("aria-labelledby")}][role=region]`)?.focus();
  };
}

async function look(asked) {
  if (looking || (!asked && (paused || document.hidden || busy()))) return;
  looking = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.redirected && !answer.url.startsWith(location.href)) {
      location.assign(answer.url);
      return;
    }
    const text = await answer.text();
    const found = new DOMParser().parseFromString(text, "text/html").querySelector("main .sections");
    if (!found) throw new Error("no page");
    const back = focused();
    const before = [...document.querySelectorAll("main .scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
    document.querySelector("main .sections").replaceWith(document.adoptNode(found));
    document.querySelectorAll("main .scroll").forEach((each, index) => {
      if (before[index]) [each.scrollLeft, each.scrollTop] = before[index];
    });
    arm();
    back();
    say(`${clock()}`);
  } catch {
    say("the broker does not answer");
  } finally {
    looking = false;
  }
}

function pauseButton(label, onPress) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "plain toggle";
  button.textContent = label;
  button.setAttribute("aria-pressed", "false");
  button.addEventListener("click", () => {
    const pressed = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(pressed));
    onPress(pressed);
  });
  state.after(button);
  return button;
}

if (seconds > 0) {
  timer = setInterval(look, seconds * 1000);
  pauseButton("Pause", (pressed) => { paused = pressed; say(pressed ? "paused" : ""); });
  say(clock());
  document.addEventListener("visibilitychange", () => look(false));
}

// --- following a log ---

const tailPath = document.body.dataset.tail;
let source = null;

function cellOf(cell) {
  const at = document.createElement(cell.head ? "th" : "td");
  if (cell.head) at.scope = "row";
  at.className = cell.style;
  if (cell.exact) at.title = cell.exact;
  let into = at;
  if (cell.block) {
    into = document.createElement("pre");
    if (cell.long) into.tabIndex = 0;
    at.append(into);
  }
  if (own(cell.path)) {
    const link = document.createElement("a");
    link.href = cell.path;
    link.textContent = cell.text;
    into.append(link);
  } else into.append(cell.text);
  return at;
}

function take(event) {
  const body = document.getElementById("tail");
  const found = JSON.parse(event.data).map((cells) => {
    const row = document.createElement("tr");
    row.className = "new";
    row.tabIndex = -1;
    row.append(...cells.map(cellOf));
    return row;
  });
  body.prepend(...found.reverse());
  while (body.rows.length > ROWS_MAX) body.lastElementChild.remove();
  body.closest("section").querySelector("p.empty")?.remove();
}

function follow(on) {
  source?.close();
  source = null;
  if (!on) return;
  say("following");
  source = new EventSource(tailPath);
  source.addEventListener("rows", take);
  source.addEventListener("notice", (event) => say(JSON.parse(event.data)));
  source.addEventListener("end", (event) => {
    say(JSON.parse(event.data));
    follow(false);
    button.setAttribute("aria-pressed", "false");
  });
  source.addEventListener("error", () => {
    if (source && source.readyState === EventSource.CLOSED) {
      say("cannot follow: too many do, or the broker does not answer");
      follow(false);
      button.setAttribute("aria-pressed", "false");
    }
  });
}

let button = null;
let wanted = false;
if (own(tailPath) && document.getElementById("tail")) {
  button = pauseButton("Follow", (pressed) => {
    wanted = pressed;
    follow(pressed);
    if (!pressed) say("");
  });
  document.addEventListener("visibilitychange", () => {
    if (wanted && button.getAttribute("aria-pressed") === "true") follow(!document.hidden);
  });
}

// --- keys ---

let going = 0;

function arm() {
  rows().forEach((row) => { row.tabIndex = -1; });
}

function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(document.activeElement.closest("tr"));
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.closest("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const now = Date.now();
  const place = now - going < 1500 && document.querySelector(`header a[data-key="${CSS.escape(event.key)}"]`);
  going = 0;
  if (place) location.assign(place.href);
  else if (event.key === "g") going = now;
  else if (event.key === "r") look(true);
  else if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "Enter" && event.target.matches("tr")) event.target.querySelector("a")?.click();
  else if (event.key === "/") {
    (document.querySelector("main input[type=search]") || document.querySelector("main .field input"))?.focus();
    event.preventDefault();
  }
});

arm();
