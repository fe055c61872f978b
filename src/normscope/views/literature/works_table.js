"use strict";
// The table of works: sorted, filtered, saved. Its rows are the data; row k is work k of the network.
function worksTable(table, tell) {
  const body = table.tBodies[0], rows = [...body.rows], headers = [...table.tHead.querySelectorAll("th[aria-sort]")];
  const plain = (words) => words.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  const cell = (row, k) => row.cells[k].textContent;
  const works = rows.map((row) => ({
    row, roleWord: cell(row, 0), title: cell(row, 1), authors: visibleText(row.cells[2]), year: cell(row, 3), venue: cell(row, 4),
    found: plain([1, 2, 4].map((k) => cell(row, k)).join(" ")), links: [...row.cells[5].querySelectorAll("a")],
  }));
  function visibleText(element) {
    return [...element.childNodes].map((part) => (part.hidden ? "" : part.textContent)).join("");
  }
  const collator = new Intl.Collator("en", { numeric: true });
  let order = rows.map((_, i) => i);
  let shown = new Uint8Array(rows.length).fill(1);

  function sort(column) {
    const up = headers[column].getAttribute("aria-sort") !== "ascending";
    headers.forEach((header, k) => header.setAttribute("aria-sort", k !== column ? "none" : up ? "ascending" : "descending"));
    const keys = works.map((work) => cell(work.row, column));
    order = rows.map((_, i) => i).sort((a, b) => { // what is not known comes last, in either direction
      if (!keys[a] || !keys[b]) return !keys[a] - !keys[b] || a - b;
      return (up ? 1 : -1) * collator.compare(keys[a], keys[b]) || a - b;
    });
    body.append(...order.map((i) => rows[i]));
  }
  headers.forEach((header, column) => header.firstElementChild.addEventListener("click", () => sort(column)));

  function filter(wanted) {
    const words = plain(wanted.text).split(/\s+/).filter(Boolean);
    const limited = wanted.from !== null || wanted.to !== null;
    let count = 0, undated = 0;
    shown = new Uint8Array(rows.length);
    works.forEach((work, i) => {
      const named = wanted.roles[i] && words.every((word) => work.found.includes(word));
      const year = work.year === "" ? null : Number(work.year);
      if (named && limited && year === null) undated++;
      const dated = !limited || (year !== null && year >= (wanted.from ?? -Infinity) && year <= (wanted.to ?? Infinity));
      shown[i] = named && dated ? 1 : 0;
      count += shown[i];
    });
    works.forEach((work, i) => { if (work.row.hidden === Boolean(shown[i])) work.row.hidden = !shown[i]; });
    return { shown, count, undated };
  }
  function mark(i) {
    for (const row of body.querySelectorAll(".marked")) row.classList.remove("marked");
    if (i < 0) return;
    const row = rows[i], frame = table.closest(".scroll");
    row.classList.add("marked");
    if (!row.hidden) frame.scrollTop += row.getBoundingClientRect().top - frame.getBoundingClientRect().top - frame.clientHeight / 3;
  }
  body.addEventListener("click", (event) => {
    const button = event.target.closest("button.pick");
    if (button) tell.picked(rows.indexOf(button.closest("tr")));
  });
  return { works, filter, mark, sort, shownInOrder: () => order.filter((i) => shown[i]) };
}
