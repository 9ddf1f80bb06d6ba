// The frame of every page: who is logged in, where to go, and which page is shown.

import { get, post, session } from "./api.js";
import { go, h, link, replace } from "./dom.js";
import { notice } from "./dialog.js";
import { icon } from "./icons.js";

const ROUTES = [
  [/^\/$/, () => import("./runs.js"), "Runs"],
  [/^\/runs\/([^/]+)$/, () => import("./run.js"), "Runs"],
  [/^\/fleet$/, () => import("./fleet.js"), "Fleet"],
  [/^\/fleet\/map$/, () => import("./map.js"), "Fleet"],
  [/^\/devices\/([^/]+)$/, () => import("./device.js"), "Fleet"],
  [/^\/models$/, () => import("./models.js"), "Models"],
  [/^\/models\/([^/]+)$/, () => import("./model.js"), "Models"],
  [/^\/models\/([^/]+)\/(\d+)$/, () => import("./version.js"), "Models"],
  [/^\/audit$/, () => import("./audit.js"), "Audit"],
];
const PLACES = [["Runs", "/", "runs"], ["Fleet", "/fleet", "fleet"], ["Models", "/models", "models"], ["Audit", "/audit", "audit"]];

const main = document.getElementById("main");
let leave = () => {};
let shown = 0;

async function show() {
  const turn = ++shown;
  leave();
  leave = () => {};
  const found = ROUTES.map(([pattern, load, place]) => [location.pathname.match(pattern), load, place]).find(([match]) => match);
  if (!found) {
    drawHeader("");
    replace(main, h("h1", {}, "There is no such page"), h("p", {}, link("/", "All runs")));
    return;
  }
  const [match, load, place] = found;
  drawHeader(place);
  const page = await load();
  if (turn !== shown) return;
  const root = h("div", { class: "page" });
  replace(main, root);
  try {
    const ended = await page.show(root, ...match.slice(1).map(decodeURIComponent));
    if (turn === shown) leave = ended ?? (() => {});
    else ended?.();
  } catch (error) {
    if (turn === shown && error.status !== 401) replace(root, h("h1", {}, "This page cannot be shown"), h("p", { class: "problem" }, error.message));
  }
}

function drawHeader(place) {
  const places = PLACES.filter(([name]) => name !== "Audit" || session.calls.includes("ListAuditRecords"));
  document.title = place ? `${place} · moonfed` : "moonfed";
  replace(document.getElementById("header"),
    h("div", { class: "brand" }, icon("moon"), h("span", {}, "moonfed")),
    h("nav", { "aria-label": "Pages" }, places.map(([name, path, drawn]) => {
      return h("a", { href: path, "aria-current": name === place ? "page" : undefined }, icon(drawn), h("span", {}, name));
    })),
    h("div", { class: "who" },
      h("div", { class: "operator" }, h("strong", {}, session.operator), h("span", {}, session.read_only ? `${session.role}, read-only` : session.role),
        h("span", { class: "address" }, session.coordinator)),
      h("button", { class: "plain round", title: "Light or dark", "aria-label": "Switch between light and dark", onclick: () => globalThis.toggleTheme() }, icon("theme")),
      !session.proxied && h("button", { class: "plain round", title: "Log out", "aria-label": "Log out", onclick: logOut }, icon("leave"))));
}

async function logOut() {
  await post("/api/logout").catch(() => {});
  location.assign("/login");
}

async function start() {
  const token = location.pathname === "/login" ? location.hash.slice(1) : "";
  try {
    if (token) {
      history.replaceState(null, "", "/login"); // neither history nor bookmarks keep the token
      Object.assign(session, await post("/api/login", { token }));
      history.replaceState(null, "", "/");
    } else {
      Object.assign(session, await get("/api/session"));
      if (location.pathname === "/login") history.replaceState(null, "", "/");
    }
  } catch (error) {
    const { askToLogIn } = await import("./login.js");
    askToLogIn(main, error, start);
    return;
  }
  show();
}

document.addEventListener("click", (event) => {
  const clicked = event.target.closest("a[href]");
  if (!clicked || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const path = clicked.getAttribute("href");
  if (!path.startsWith("/")) return;
  event.preventDefault();
  go(path);
});
addEventListener("popstate", show);
addEventListener("loggedout", () => location.assign("/login"));
addEventListener("failure", (event) => { if (event.detail.status !== 401) notice(event.detail.message, "bad"); });
start();
