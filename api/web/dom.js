// Building elements. Whatever comes from the service is set as text, never as HTML.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// Columns: [heading, cell of a row, class].
export function table(caption, columns, rows, rowClass = () => null) {
  const head = make("tr", {}, ...columns.map(([heading, , kind]) => make("th", { scope: "col", class: kind }, heading)));
  const body = rows.map((row) =>
    make("tr", { class: rowClass(row) }, ...columns.map(([, cell, kind]) => make("td", { class: kind }, cell(row))))
  );
  const element = make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "scroll" }, element);
}
