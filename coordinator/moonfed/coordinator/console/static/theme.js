// Sets the theme before the first paint: the operator's choice, else the system's.
"use strict";
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let chosen = null;
    try { chosen = localStorage.getItem("theme"); } catch { /* storage is switched off */ }
    document.documentElement.dataset.theme = chosen ?? (dark.matches ? "dark" : "light");
    dispatchEvent(new Event("themechange"));
  };
  dark.addEventListener("change", apply);
  globalThis.toggleTheme = () => {
    const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", next); } catch { /* it lasts until the page is left */ }
    document.documentElement.dataset.theme = next;
    dispatchEvent(new Event("themechange"));
  };
  apply();
})();
