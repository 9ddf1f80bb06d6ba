// The page of those who are not logged in.

import { h, replace } from "./dom.js";
import { post } from "./api.js";

export function askToLogIn(main, error, next) {
  document.title = "Log in · moonfed";
  const problem = h("p", { class: "problem", role: "alert" }, error.status === 401 && !error.document.password ? "" : error.status === 401 ? "" : error.message);
  const parts = [h("h1", {}, "moonfed console")];
  if (error.document?.password) {
    const name = h("input", { name: "operator", autocomplete: "username", required: true });
    const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
    const button = h("button", { class: "primary" }, "Log in");
    const submit = async (event) => {
      event.preventDefault();
      button.disabled = true;
      try {
        await post("/api/login", { operator: name.value, password: password.value });
        next();
      } catch (failure) {
        replace(problem, failure.message);
        button.disabled = false;
        password.select();
      }
    };
    parts.push(h("form", { onsubmit: submit }, h("label", {}, h("span", {}, "Operator"), name),
      h("label", {}, h("span", {}, "Password"), password), problem, button));
  } else {
    const used = error.status === 401 && error.message !== "log in first" ? error.message : "";
    parts.push(h("p", { class: "problem", role: "alert" }, used || (error.status === 401 ? "" : error.message)),
      h("p", {}, "Open the link that ", h("code", {}, "moonfed-coordinator console"), " printed. Each link works once; press Enter in that terminal for another."));
  }
  replace(main, h("div", { class: "login card" }, parts));
}
