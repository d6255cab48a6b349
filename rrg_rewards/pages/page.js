"use strict";
(() => {
  const PAGE_SIZES = [50, 200, 1000];
  const STATUSES = ["unread", "matched", "misdescribed", "missed", "invented"];
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);

  // Text is only ever set as text, never parsed as HTML.
  function make(name, attributes, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value);
    }
    node.append(...children.filter((child) => child !== null));
    return node;
  }

  byId("theme").addEventListener("change", (event) => {
    document.documentElement.dataset.theme = event.target.value;
  });
  if (!data) return;

  const overview = byId("overview");
  const view = byId("view");
  const place = byId("rows");
  const number = new Intl.NumberFormat("en", { maximumSignificantDigits: 4, useGrouping: false });
  const Noun = data.noun[0].toUpperCase() + data.noun.slice(1);
  // Whole numbers are counts, which are not rounded.
  const shown = (cell) => (cell === null ? "-" : typeof cell !== "number" ? cell
    : Number.isInteger(cell) ? String(cell) : number.format(cell));
  const columns = data.columns.filter((column) => column.shown);
  const numbers = columns.filter((column) => column.number);
  const state = { column: -1, descending: false, words: "", filter: 0, low: null, high: null, size: PAGE_SIZES[0], page: 0 };
  // Metrics that compare findings, and the one whose findings are marked.
  const compared = Object.keys(data.findings);
  let marked = compared[0];
  let order = data.names.map((_, row) => row);
  let searched = null;

  function say(text) {
    byId("status").textContent = text;
  }

  // Names, cells of text and reports, in lower case; made at the first search.
  function searchedTexts() {
    searched ??= data.names.map((name, row) =>
      [name, ...data.columns.filter((column) => !column.number).map((column) => column.cells[row] ?? ""),
        ...data.panes.map((pane) => pane.texts[row] ?? "")].join("\n").toLowerCase());
    return searched;
  }

  function compare(first, second) {
    if (typeof first === "number" && typeof second === "number") return first - second;
    return String(first).localeCompare(String(second), "en", { numeric: true });
  }

  function choose() {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const texts = words.length ? searchedTexts() : null;
    const limited = numbers[state.filter]?.cells;
    order = data.names.map((_, row) => row).filter((row) => {
      if (words.some((word) => !texts[row].includes(word))) return false;
      if (state.low === null && state.high === null) return true;
      const value = limited[row];
      return value !== null && (state.low === null || value >= state.low) && (state.high === null || value <= state.high);
    });
    if (state.column >= 0) {
      const cells = state.column === 0 ? data.names : columns[state.column - 1].cells;
      const sign = state.descending ? -1 : 1;
      // Rows without a value come last in both directions.
      order.sort((a, b) => {
        if (cells[a] === null || cells[b] === null) return (cells[a] === null) - (cells[b] === null) || a - b;
        return sign * compare(cells[a], cells[b]) || a - b;
      });
    }
    state.page = 0;
    draw();
  }

  const body = make("tbody");
  const heads = [Noun, ...columns.map((column) => column.name)].map((name, index) =>
    make("th", { scope: "col", class: index && columns[index - 1].number ? "number" : null },
      make("button", { type: "button", onclick: () => sortBy(index) }, name)));
  const count = make("p", { class: "note", id: "count" });
  const back = make("button", { type: "button", onclick: () => turn(-1) }, "Previous page");
  const next = make("button", { type: "button", onclick: () => turn(1) }, "Next page");

  function sortBy(index) {
    state.descending = state.column === index && !state.descending;
    state.column = index;
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    heads[index].setAttribute("aria-sort", state.descending ? "descending" : "ascending");
    choose();
  }

  function turn(pages) {
    state.page += pages;
    draw();
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(order.length / state.size));
    const first = state.page * state.size;
    body.replaceChildren(...order.slice(first, first + state.size).map((row) =>
      make("tr", {},
        make("th", { scope: "row" }, make("a", { href: `#${row + 1}` }, data.names[row])),
        ...columns.map((column) => make("td", { class: column.number ? "number" : "cell" }, shown(column.cells[row]))))));
    const part = pages > 1 ? `, page ${state.page + 1} of ${pages}` : "";
    count.textContent = `${order.length} of ${data.names.length} ${data.noun}s${part}`;
    say(count.textContent);
    back.disabled = state.page === 0;
    next.disabled = state.page >= pages - 1;
  }

  function field(name, input) {
    return make("label", {}, name, input);
  }

  function limit(key) {
    return make("input", {
      type: "number", step: "any", id: key,
      oninput: (event) => { state[key] = event.target.value === "" ? null : Number(event.target.value); choose(); },
    });
  }

  function drawControls() {
    const search = make("input", {
      type: "search", id: "search", oninput: (event) => { state.words = event.target.value; choose(); },
    });
    const filter = make("select", { id: "filter", onchange: (event) => { state.filter = Number(event.target.value); choose(); } },
      ...numbers.map((column, index) => make("option", { value: index }, column.name)));
    const sizes = make("select", { id: "size", onchange: (event) => { state.size = Number(event.target.value); turn(-state.page); } },
      ...PAGE_SIZES.map((size) => make("option", { value: size }, String(size))),
      make("option", { value: data.names.length + 1 }, "all"));
    const limits = numbers.length ? [field("Column", filter), field("From", limit("low")), field("To", limit("high"))] : [];
    const title = `All ${data.noun}s`;
    place.setAttribute("aria-label", title);
    place.append(
      make("h2", {}, title),
      make("div", { class: "controls" }, field("Search", search), ...limits, field("Rows", sizes)),
      count,
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table" },
        make("table", { id: "table" }, make("thead", {}, make("tr", {}, ...heads)), body)),
      make("div", { class: "controls pages" }, back, next));
    place.hidden = false;
  }

  // The findings of a pane as pieces of text; where findings overlap, a piece has the worst status.
  function pieces(text, findings) {
    const edges = new Set([0, text.length]);
    findings.forEach((finding) => finding[7].forEach((span) => span.forEach((edge) => edges.add(edge))));
    const sorted = [...edges].sort((a, b) => a - b);
    return sorted.slice(1).map((end, index) => {
      const start = sorted[index];
      const here = findings.filter((finding) => finding[7].some((span) => span[0] <= start && end <= span[1]));
      return { text: text.slice(start, end), here, last: here.filter((one) => one[7].some((span) => span[1] === end)) };
    });
  }

  function report(text, findings) {
    if (text === null) return make("p", { class: "note" }, "There is no text.");
    const parts = pieces(text, findings).map((piece) => {
      if (!piece.here.length) return piece.text;
      const status = STATUSES[Math.max(...piece.here.map((finding) => STATUSES.indexOf(finding[2])))];
      const title = piece.here.map((finding) => [finding[1], finding[2], finding[6]].filter(Boolean).join(" ")).join("; ");
      return make("mark", { class: status, title },
        piece.text, ...piece.last.map((finding) => make("a", {
          href: `#finding-${finding[1]}`, "aria-label": `${finding[1]}, ${finding[2]}`,
          onclick: (event) => { event.preventDefault(); byId(`finding-${finding[1]}`).focus(); },
        }, finding[1])));
    });
    return make("p", { class: "report" }, ...parts);
  }

  function grid(headings, rows, caption) {
    return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
      make("table", {}, make("caption", {}, caption),
        make("thead", {}, make("tr", {}, ...headings.map((heading) => make("th", { scope: "col" }, heading)))),
        make("tbody", {}, ...rows)));
  }

  function markedMetric(row) {
    if (compared.length < 2) return null;
    const choice = make("select", { id: "marked", onchange: (event) => { marked = event.target.value; open(row); byId("marked").focus(); } },
      ...compared.map((name) => make("option", { value: name, selected: name === marked ? "" : null }, name)));
    return make("div", { class: "controls" }, field("Findings of", choice));
  }

  function findingTable(findings) {
    const rows = findings.map((finding) => make("tr", { id: `finding-${finding[1]}`, tabindex: "-1" },
      make("th", { scope: "row" }, finding[1]), make("td", {}, data.sides[finding[0]]),
      make("td", {}, make("span", { class: `tag ${finding[2]}` }, finding[2])),
      make("td", { class: "cell" }, finding[5] || "-"), make("td", {}, finding[3].replaceAll("_", " ") || "-"),
      make("td", {}, finding[4] || "-"), make("td", { class: "cell" }, finding[6] || "-")));
    return grid(["Finding", "Report", "Status", "Text", "Significance", "Matched with", "Reason"], rows, `Findings of ${marked}`);
  }

  function groups(row) {
    const named = new Map();
    data.columns.forEach((column) => {
      if (column.cells[row] === null || column.cells[row] === "") return;
      if (!named.has(column.group)) named.set(column.group, []);
      named.get(column.group).push(column);
    });
    return [...named].map(([group, members]) => make("div", {},
      grid(["Name", "Value"], members.map((column) => make("tr", {}, make("th", { scope: "row" }, column.name),
        make("td", { class: column.number ? "number" : "cell" }, shown(column.cells[row])))), group || "Values")));
  }

  function open(row) {
    const at = order.indexOf(row);
    const findings = data.findings[marked]?.[row] ?? null;
    const step = (by, name) => make("button", {
      type: "button", id: name, disabled: order[at + by] === undefined ? "" : null,
      onclick: () => { location.hash = `#${order[at + by] + 1}`; },
    }, name === "previous" ? "Previous" : "Next");
    const heading = make("h2", { tabindex: "-1" }, `${Noun} ${data.names[row]}`);
    const position = at < 0 ? "" : `${at + 1} of ${order.length}`;
    const panes = data.panes.map((pane, index) => make("section", { class: "pane", "aria-label": pane.title },
      make("h3", {}, pane.title), report(pane.texts[row], (findings ?? []).filter((finding) => finding[0] === index))));
    view.replaceChildren(
      make("nav", { class: "controls", "aria-label": `${Noun}s` },
        make("a", { href: "#", id: "back" }, `All ${data.noun}s`), step(-1, "previous"), step(1, "next"),
        make("span", { class: "note" }, `${position} (arrow keys; Escape returns)`)),
      heading,
      markedMetric(row),
      findings && data.panes.length
        ? make("p", { class: "note" }, `Findings of ${marked}: `, ...STATUSES.filter((name) => name !== "unread"
          || findings.some((finding) => finding[2] === name)).flatMap((name) => [make("span", { class: `tag ${name}` }, name), " "]))
        : null,
      make("div", { class: "panes" }, ...panes),
      findings ? findingTable(findings) : null,
      make("h3", {}, "Values"),
      make("div", { class: "groups" }, ...groups(row)));
    overview.hidden = true;
    view.hidden = false;
    heading.focus();
    scrollTo(0, 0);
    say(`${Noun} ${data.names[row]}, ${position}`);
  }

  let opened = null;
  function route() {
    const row = Number(location.hash.slice(1)) - 1;
    if (Number.isInteger(row) && row >= 0 && row < data.names.length) {
      opened = row;
      open(row);
    } else {
      view.hidden = true;
      overview.hidden = false;
      if (opened === null) return;
      const page = Math.floor(order.indexOf(opened) / state.size);
      if (page >= 0) turn(page - state.page);
      body.querySelector(`a[href="#${opened + 1}"]`)?.focus();
      opened = null;
    }
  }

  addEventListener("hashchange", route);
  addEventListener("keydown", (event) => {
    if (view.hidden || event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, select, .scroll")) return;
    if (event.key === "ArrowLeft") byId("previous").click();
    if (event.key === "ArrowRight") byId("next").click();
    if (event.key === "Escape") byId("back").click();
  });
  drawControls();
  draw();
  route();
})();
