"use strict";
// All builds beside each other: a table of their figures, two of them as a plot with the Pareto front marked.
let comparedRows = [];
const LESS = /cycles|\.ms$|\.mb$|\.uj$|host_|gap|delta|wide_tensors|different|hazards|bytes/;

async function showCompare() {
  comparedRows = await (await asked("api/compare")).json();
  const keys = [...new Set(comparedRows.flatMap((row) => Object.keys(row.figures)))].sort();
  for (const [name, wanted] of [
    ["right", "simulate.cycles"],
    ["up", "fidelity.worst_sqnr_db"],
  ]) {
    const kept = by(name).value || wanted;
    by(name).replaceChildren(...keys.map((key) => made("option", key, { value: key })));
    if (keys.includes(kept)) by(name).value = kept;
  }
  await redraw();
}

function among() {
  const part = by("among").value.toLowerCase(),
    [right, up] = [by("right").value, by("up").value];
  return comparedRows.filter(
    (row) => row.place.toLowerCase().includes(part) && right in row.figures && up in row.figures,
  );
}

// A build is on the front where no other is at least as good in both figures and better in one.
function front(rows, right, up) {
  const [a, b] = [right, up].map((key) => (by("down").checked || LESS.test(key) ? 1 : -1));
  const better = (one, other) => {
    const [p, q] = [
      a * (one.figures[right] - other.figures[right]),
      b * (one.figures[up] - other.figures[up]),
    ];
    return p <= 0 && q <= 0 && (p < 0 || q < 0);
  };
  return new Set(rows.filter((row) => !rows.some((one) => better(one, row))).map((row) => row.id));
}

async function redraw() {
  const [right, up] = [by("right").value, by("up").value],
    rows = among(),
    best = front(rows, right, up);
  const keys = [
    ...new Set([
      right,
      up,
      "simulate.ms",
      "simulate.mb",
      "energy.uj",
      "tiling.gap",
      ...rows.flatMap((row) => Object.keys(row.figures).filter((key) => key.startsWith("evaluate."))),
    ]),
  ].filter((key) => rows.some((row) => key in row.figures));
  const head = made("tr");
  head.append(made("th", "build"), ...keys.map((key) => made("th", key)));
  by("compared").tHead.replaceChildren(head);
  by("compared").tBodies[0].replaceChildren(
    ...rows.map((row) => {
      const line = made("tr", "", { className: best.has(row.id) ? "best" : "" }),
        name = made("td");
      line.dataset.id = row.id;
      name.append(made("a", row.name, { href: `#${row.id}`, title: row.place }));
      line.append(
        name,
        ...keys.map((key) => made("td", key in row.figures ? String(+row.figures[key].toPrecision(6)) : "")),
      );
      return line;
    }),
  );
  by("front").replaceChildren();
  if (rows.length < 2) {
    by("front").textContent = "A plot needs two builds that have both figures.";
    return;
  }
  const values = rows.map((row) => ({
    name: row.name,
    place: row.place,
    right: row.figures[right],
    up: row.figures[up],
    front: best.has(row.id) ? "on the front" : "behind it",
  }));
  const x = { field: "right", type: "quantitative", title: right, scale: { zero: false } },
    y = { field: "up", type: "quantitative", title: up, scale: { zero: false } };
  const colour = {
    field: "front",
    type: "nominal",
    title: null,
    scale: { domain: ["on the front", "behind it"], range: ["#d9822b", "#7b8894"] },
  };
  await plot(rows[0].id, by("front"), {
    data: { values },
    layer: [
      {
        transform: [{ filter: "datum.front == 'on the front'" }],
        mark: { type: "line", interpolate: "step-after", color: "#d9822b" },
        encoding: { x, y },
      },
      {
        mark: { type: "point", filled: true, size: 70 },
        encoding: {
          x,
          y,
          color: colour,
          tooltip: [
            { field: "name" },
            { field: "place" },
            { field: "right", title: right },
            { field: "up", title: up },
          ],
        },
      },
    ],
  }).catch((fault) => {
    by("front").textContent = fault.message;
  });
}

for (const name of ["among", "right", "up", "down"]) by(name).addEventListener("input", () => redraw());
