// A table that has only the visible rows in the page, however many there are.

import { h, replace } from "./dom.js";

const ROW = 37; // pixels, as in style.css
const SPARE = 8; // rows above and below the visible ones

// columns: { name, label, cell(row), sort?(row), width?, narrow? (width on phones), kind? ("number"), wide? (hidden on phones) }
export class Table {
  constructor(caption, columns, { classes = "", empty = "There is nothing to show." } = {}) {
    this.columns = columns;
    this.rows = [];
    this.sorted = { column: null, down: false };
    this.first = this.last = -1;
    this.above = h("tr", { "aria-hidden": "true" });
    this.below = h("tr", { "aria-hidden": "true" });
    this.body = h("tbody");
    this.head = h("tr");
    this.quiet = h("p", { class: "quiet", hidden: true }, empty);
    this.table = h("table", {}, h("caption", { class: "hidden" }, caption),
      h("colgroup", {}, columns.map((one) => h("col", { class: one.wide && "wide", "--w": one.width ?? "auto", "--n": one.narrow ?? one.width ?? "auto" }))),
      h("thead", {}, this.head), this.body);
    this.element = h("div", { class: `scroller ${classes}`, tabindex: "0", role: "region", "aria-label": caption }, this.table, this.quiet);
    let waiting = false;
    this.element.addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; this.draw(); });
    }, { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.drawHead();
  }

  drawHead() {
    replace(this.head, this.columns.map((column) => {
      const active = this.sorted.column === column;
      const order = active ? (this.sorted.down ? "descending" : "ascending") : undefined;
      const classes = [column.kind, column.wide && "wide"].filter(Boolean).join(" ");
      const label = column.sort
        ? h("button", { class: "plain", onclick: () => this.sortBy(column) }, column.label,
          h("span", { class: "order", "aria-hidden": "true" }, active ? (this.sorted.down ? "↓" : "↑") : ""))
        : column.label;
      return h("th", { scope: "col", class: classes, "aria-sort": order }, label);
    }));
  }

  sortBy(column) {
    this.sorted = { column, down: this.sorted.column === column ? !this.sorted.down : false };
    this.drawHead();
    this.show(this.rows);
  }

  show(rows) {
    this.rows = rows;
    const { column, down } = this.sorted;
    this.order = rows;
    if (column) {
      const keyed = rows.map((row) => [column.sort(row), row]);
      keyed.sort(([a], [b]) => (a === b ? 0 : a === null || a < b ? -1 : 1));
      if (down) keyed.reverse();
      this.order = keyed.map(([, row]) => row);
    }
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    this.quiet.hidden = rows.length > 0;
    this.first = this.last = -1;
    this.draw();
  }

  draw() {
    if (!this.order) return;
    const view = this.element;
    const first = Math.max(0, Math.floor(view.scrollTop / ROW) - SPARE);
    const last = Math.min(this.order.length, Math.ceil((view.scrollTop + (view.clientHeight || 600)) / ROW) + SPARE);
    if (first === this.first && last === this.last) return;
    this.first = first;
    this.last = last;
    this.above.style.height = `${first * ROW}px`;
    this.below.style.height = `${(this.order.length - last) * ROW}px`;
    const rows = [];
    for (let place = first; place < last; place++) {
      const row = this.order[place];
      rows.push(h("tr", { "aria-rowindex": place + 2 }, this.columns.map((column) => {
        return h("td", { class: [column.kind, column.wide && "wide"].filter(Boolean).join(" ") }, column.cell(row));
      })));
    }
    const shown = [...this.body.children].slice(1, -1);
    if (shown.length === rows.length && rows.every((row, place) => row.isEqualNode(shown[place]))) return;
    const focused = this.focused();
    replace(this.body, this.above, rows, this.below);
    if (focused) this.body.querySelector(`tr[aria-rowindex="${focused.row}"]`)?.querySelectorAll("a, button, input")[focused.place]?.focus({ preventScroll: true });
  }

  // Where the keyboard is, so that it stays there when rows are drawn again.
  focused() {
    const row = document.activeElement?.closest("tr[aria-rowindex]");
    if (!row || !this.body.contains(row)) return null;
    return { row: row.getAttribute("aria-rowindex"), place: [...row.querySelectorAll("a, button, input")].indexOf(document.activeElement) };
  }
}
