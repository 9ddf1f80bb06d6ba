// The part of Markdown that model cards use, as elements. Anything else is text.
// pictures: the address of each picture by its name; others are text, too.

import { h } from "./dom.js";

export function markdown(source, pictures = {}) {
  const lines = source.replaceAll("\r", "").split("\n");
  const found = [];
  let place = 0;
  const take = (belongs) => {
    const first = place;
    while (place < lines.length && belongs(lines[place])) place++;
    return lines.slice(first, place);
  };
  while (place < lines.length) {
    const line = lines[place];
    const heading = line.match(/^(#{1,4}) (.+)$/);
    const picture = line.match(/^!\[([^\]]*)\]\(([\w.-]+)\)$/);
    if (!line.trim()) place++;
    else if (heading) {
      found.push(h(`h${Math.min(heading[1].length + 2, 6)}`, {}, inline(heading[2])));
      place++;
    } else if (picture && Object.hasOwn(pictures, picture[2])) {
      found.push(h("figure", {}, h("img", { src: pictures[picture[2]], alt: picture[1], loading: "lazy" }), h("figcaption", { class: "quiet" }, picture[1])));
      place++;
    } else if (line.startsWith("    ")) {
      found.push(h("pre", { tabindex: "0" }, take((one) => one.startsWith("    ") || !one.trim()).map((one) => one.slice(4)).join("\n").trimEnd()));
    } else if (line.startsWith("|")) found.push(table(take((one) => one.startsWith("|"))));
    else if (line.startsWith("- ")) found.push(h("ul", {}, take((one) => one.startsWith("- ")).map((one) => h("li", {}, inline(one.slice(2))))));
    else found.push(h("p", {}, inline(take((one) => one.trim() && !/^(#{1,4} |\||- |    )/.test(one)).join(" ") || lines[place++])));
  }
  return found;
}

function table(lines) {
  const rows = lines.map((line) => line.replace(/^\||\|\s*$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|")));
  const [head, rule, ...body] = rows;
  const ruled = rule?.every((cell) => /^:?-+:?$/.test(cell));
  const shown = ruled ? body : rows;
  return h("div", { class: "matrix", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", { class: "small" },
    ruled && head.some(Boolean) && h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, inline(cell))))),
    h("tbody", {}, shown.map((row) => h("tr", {}, row.map((cell) => h("td", {}, inline(cell))))))));
}

function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*)/).map((part) => {
    if (part.length > 2 && part.startsWith("`")) return h("code", {}, part.slice(1, -1));
    if (part.length > 4 && part.startsWith("**")) return h("strong", {}, part.slice(2, -2));
    return part;
  });
}
