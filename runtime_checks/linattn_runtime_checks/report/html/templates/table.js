// Sorting and filtering of the tables that ask for it. Without this script they are complete.
"use strict";
for (const table of document.querySelectorAll("table[data-tools]")) {
  const body = table.tBodies[0];
  const rows = Array.from(body.rows);
  const headings = Array.from(table.tHead.rows[0].cells);

  // Numbers sort by what they mean, text as people read it; what is not there comes last.
  const order = new Intl.Collator("en", { numeric: true });
  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.key !== undefined) return Number(cell.dataset.key.replace("inf", "Infinity"));
    const text = cell.textContent.trim();
    return text === "-" || text === "" ? null : text;
  };
  const compare = (a, b) => {
    if (typeof a === "string" || typeof b === "string") return order.compare(a, b);
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return a === b ? 0 : a < b ? -1 : 1;
  };
  const sort = (column, direction) => {
    const sorted = rows.slice().sort((one, other) => {
      const a = key(one, column), b = key(other, column);
      if (a === null || b === null) return (a === null) - (b === null);
      return direction * compare(a, b);
    });
    body.append(...sorted);
  };
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const ascending = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of headings) other.setAttribute("aria-sort", "none");
      heading.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sort(column, ascending ? 1 : -1);
    });
  });

  const tools = document.createElement("div");
  tools.className = "tools";
  const label = document.createElement("label");
  label.textContent = "Filter ";
  const input = document.createElement("input");
  input.type = "search";
  input.placeholder = "words, all must occur";
  input.setAttribute("aria-label", `Filter ${table.dataset.tools}`);
  label.append(input);
  const count = document.createElement("output");
  count.className = "note";
  tools.append(label, count);
  table.closest(".table").prepend(tools);
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = Array.from(row.cells, (cell) => cell.textContent).join(" ").toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  input.addEventListener("input", filter);
  filter();
}

// On paper, what is folded would be lost.
const folded = () => document.querySelectorAll("details.print-open");
addEventListener("beforeprint", () => {
  for (const details of folded()) {
    details.dataset.was = String(details.open);
    details.open = true;
  }
});
addEventListener("afterprint", () => {
  for (const details of folded()) details.open = details.dataset.was === "true";
});
