// Confirmation of actions, and notices.

import { h, replace } from "./dom.js";
import { permits, post, session } from "./api.js";

export function notice(text, kind = "info") {
  const close = h("button", { class: "plain", "aria-label": "Dismiss", onclick: () => shown.remove() }, "×");
  const shown = h("div", { class: `notice ${kind}` }, h("span", {}, text), close);
  const notices = document.getElementById("notices");
  notices.append(shown);
  while (notices.childElementCount > 3) notices.firstElementChild.remove();
  setTimeout(() => shown.remove(), kind === "bad" ? 20000 : 6000);
}

// Asks before an action: `fields` are elements whose names and values are sent. Resolves to the reply, or null.
export function confirm({ title, text, verb, path, document: given = {}, fields = [], danger = false }) {
  return new Promise((resolve) => {
    const problem = h("p", { class: "problem", role: "alert" });
    const act = h("button", { type: "submit", class: danger ? "danger" : "primary" }, verb);
    const cancel = h("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
    let reply = null;
    const submit = async (event) => {
      event.preventDefault();
      act.disabled = true;
      try {
        reply = await post(path, { ...given, ...values(fields) });
        dialog.close();
        notice(`${title.replace(/\?$/, "")}: done`, "ok");
      } catch (error) {
        replace(problem, error.message);
        act.disabled = false;
      }
    };
    const form = h("form", { onsubmit: submit }, h("h2", { id: "dialog-title" }, title), h("p", {}, text),
      fields.map((field) => field.label), problem, h("div", { class: "buttons" }, cancel, act));
    const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => { dialog.remove(); resolve(reply); } }, form);
    document.body.append(dialog);
    dialog.showModal();
    (fields[0]?.input ?? cancel).focus();
  });
}

// A labelled input of a dialog; `read` turns its text into the value that is sent.
export function field(name, label, input, read = (text) => text) {
  return { name, input, read, label: h("label", {}, h("span", {}, label), input) };
}

function values(fields) {
  return Object.fromEntries(fields.map(({ name, input, read }) => {
    return [name, input.type === "checkbox" ? input.checked : read(input.value)];
  }));
}

// A button for a Control call; without permission it is there, disabled, and says why.
export function action(call, text, onclick, kind = "") {
  if (permits(call)) return h("button", { class: kind, onclick }, text);
  return h("button", { disabled: true, title: session.read_only ? "This console is read-only" : "Your role does not permit this" }, text);
}
