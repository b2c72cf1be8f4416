"use strict";
// The page asks for builds, shows one, and marks its stages as events say that they ran or were hits.
const by = (id) => document.getElementById(id);
const made = (tag, text = "", more = {}) =>
  Object.assign(document.createElement(tag), { textContent: text }, more);
const drawn = (tag, attributes) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};
let chosen = "",
  counts = {};

async function asked(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(await answer.text());
  return answer;
}

async function list() {
  const rows = await (await asked("api/builds")).json();
  by("builds").replaceChildren(
    ...rows.map((row) => {
      const button = made("button", row.name, {
        onclick: () => {
          location.hash = row.id;
        },
      });
      button.dataset.id = row.id;
      if (row.errors.length) button.append(made("strong", "failed", { className: "failed" }));
      button.append(
        made("small", `${new Date(1000 * row.at).toLocaleString()}, ${row.steps} steps`),
        made("small", row.place),
      );
      const item = made("li");
      item.append(button);
      return item;
    }),
  );
  if (!rows.length) {
    by("title").textContent = "The cache holds no build yet: npuflow build RECIPE";
    by("page-stages").hidden = true;
  }
  const wanted = location.hash.slice(1).split("/")[0];
  if (!wanted && rows.length) location.replace(`#${rows[0].id}`);
  else mark();
}

function mark() {
  for (const button of by("builds").querySelectorAll("button")) {
    if (button.dataset.id === chosen) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
}

function turn(page) {
  for (const name of ["stages", "network", "tensor", "compare"]) by(`page-${name}`).hidden = name !== page;
  by("pages").hidden = page === "compare";
  for (const one of by("pages").querySelectorAll("a[data-page]"))
    one.href = `#${chosen}${one.dataset.page && "/"}${one.dataset.page}`;
}

async function show() {
  const [id, stage, ...rest] = location.hash.slice(1).split("/"),
    name = rest.join("/"); // of a layer or tensor, which may have a / as it is
  if (!id) return;
  if (id === "compare") {
    by("title").textContent = "Builds beside each other";
    chosen = "";
    mark();
    turn("compare");
    await showCompare();
    return;
  }
  if (id !== chosen) {
    const found = await (await asked(`api/builds/${encodeURIComponent(id)}`)).json();
    chosen = id;
    errors(found.errors);
    figures(found.figures);
    table(found.stages);
    graph(found.stages);
    by("report").hidden = by("network").hidden = !found.report;
    by("report").href = `builds/${id}/report`;
    by("log").hidden = true;
    mark();
  }
  // also after a page that could not be shown
  const button = [...by("builds").querySelectorAll("button")].find((one) => one.dataset.id === id);
  by("title").textContent = button ? button.firstChild.textContent : id;
  const page = ["network", "tensor"].includes(stage) ? stage : "stages";
  turn(page);
  if (page === "network") await showNetwork(id, decodeURIComponent(name));
  else if (page === "tensor") await showTensor(id, decodeURIComponent(name));
  else if (stage) await log(id, stage);
}

function errors(found) {
  by("errors").hidden = !found.length;
  by("errors").replaceChildren(
    ...found.map((error) => {
      const item = made("li"),
        where = Object.entries(error.where || {}).map(([name, value]) => `${name} ${value}`);
      item.append(made("strong", [error.code, error.message].filter(Boolean).join("  ")));
      if (where.length) item.append(made("small", where.join(", ")));
      if (error.because) item.append(made("small", `because ${error.because}`));
      if (error.hint) item.append(made("small", `try ${error.hint}`));
      return item;
    }),
  );
}

const said = (summary) =>
  Object.entries(summary)
    .filter(([, value]) => value !== "")
    .map(([name, value]) => `${name} ${value}`.trim())
    .join(", ");

function figures(found) {
  by("figures").replaceChildren(
    ...Object.entries(found).flatMap(([stage, summary]) => {
      const box = made("div");
      box.append(made("dt", stage), made("dd", said(summary)));
      return [box];
    }),
  );
}

function table(stages) {
  by("stages").tBodies[0].replaceChildren(
    ...stages.map((row) => {
      const line = made("tr"),
        name = made("td");
      line.dataset.stage = row.stage;
      name.append(
        made("button", row.stage, {
          onclick: () => {
            location.hash = `${chosen}/${row.stage}`;
          },
        }),
      );
      line.append(
        name,
        made("td", row.steps),
        made("td", row.seconds.toFixed(2)),
        made("td"),
        made("td", said(row.summary)),
      );
      return line;
    }),
  );
  update();
}

function graph(stages) {
  const depth = {},
    columns = [],
    place = {};
  for (const row of stages) {
    depth[row.stage] = Math.max(-1, ...row.needs.map((need) => depth[need] ?? -1)) + 1;
    (columns[depth[row.stage]] ||= []).push(row.stage);
  }
  const width = 150,
    height = 34,
    tall = Math.max(1, ...columns.map((column) => column.length));
  const svg = drawn("svg", {
    class: "nodes",
    width: columns.length * width,
    height: tall * height,
    viewBox: `0 0 ${columns.length * width} ${tall * height}`,
  });
  columns.forEach((column, x) =>
    column.forEach((stage, y) => {
      place[stage] = [x * width, y * height + 4];
    }),
  );
  for (const row of stages)
    for (const need of row.needs)
      if (place[need]) {
        const [x, y] = place[need],
          [u, v] = place[row.stage];
        svg.append(
          drawn("path", {
            d: `M${x + width - 24},${y + 12} C${x + width},${y + 12} ${u - 20},${v + 12} ${u},${v + 12}`,
          }),
        );
      }
  for (const [stage, [x, y]] of Object.entries(place)) {
    const box = drawn("g", { "data-stage": stage }),
      label = drawn("text", { x: x + 6, y: y + 16 });
    label.textContent = stage;
    box.addEventListener("click", () => {
      location.hash = `${chosen}/${stage}`;
    });
    box.append(drawn("rect", { x, y, width: width - 24, height: 24, rx: 4 }), label);
    svg.append(box);
  }
  by("graph").replaceChildren(svg);
  update();
}

function update() {
  for (const [stage, count] of Object.entries(counts)) {
    const kind = count.ran ? "ran" : "hit";
    for (const box of by("graph").querySelectorAll("g"))
      if (box.dataset.stage === stage) box.setAttribute("class", kind);
    for (const line of by("stages").tBodies[0].rows)
      if (line.dataset.stage === stage) {
        line.cells[3].className = kind;
        line.cells[3].textContent = [count.ran && `${count.ran} ran`, count.hit && `${count.hit} hit`]
          .filter(Boolean)
          .join(", ");
      }
  }
}

async function log(id, stage) {
  const answer = await fetch(`api/builds/${encodeURIComponent(id)}/log/${encodeURIComponent(stage)}`);
  const known = [...by("stages").tBodies[0].rows].some((line) => line.dataset.stage === stage);
  by("log").textContent = answer.ok
    ? `${stage}:\n${await answer.text()}`
    : known
      ? `${stage} said nothing`
      : `this build has no stage "${stage}"`;
  by("log").hidden = false;
  by("log").setAttribute("aria-label", `log of ${stage}`);
  // it lies below a long table
  by("log").scrollIntoView({ block: "nearest" });
  by("log").focus({ preventScroll: true });
}

function follow() {
  const events = new EventSource("events");
  let running = 0;
  events.onmessage = async (event) => {
    const found = JSON.parse(event.data);
    if (found.running > 0 && running === 0) counts = {};
    running = found.running;
    for (const [stage, count] of Object.entries(found.stages || {})) {
      const sum = (counts[stage] ||= { ran: 0, hit: 0 });
      sum.ran += count.ran || 0;
      sum.hit += count.hit || 0;
    }
    by("live").textContent = running
      ? `${running} running: ${Object.keys(counts).slice(-3).join(", ")}`
      : "nothing runs";
    if (found.builds) {
      const kept = chosen;
      for (const id of Object.keys(networks)) delete networks[id];
      await list();
      if (kept) {
        chosen = "";
        await show().catch(fail);
      }
    }
    update();
  };
  events.onerror = () => {
    by("live").textContent = "the server is gone";
  };
}

document.addEventListener("keydown", (event) => {
  const buttons = [...by("builds").querySelectorAll("button")];
  const at = buttons.indexOf(document.activeElement);
  const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1 }[event.key];
  if (!step || !buttons.length || event.target.closest("main pre, input, select, #layers")) return;
  event.preventDefault();
  buttons[Math.min(Math.max(at + step, 0), buttons.length - 1)].focus();
});
function fail(fault) {
  by("title").textContent = fault.message;
  turn("");
}
addEventListener("hashchange", () => show().catch(fail));
addEventListener("DOMContentLoaded", () => {
  follow();
  list().then(show).catch(fail);
});
