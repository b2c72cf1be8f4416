"use strict";
// The network's layers as a graph, one tensor in full: plotted by the script of the build's own report.
const BAD = 10,
  GOOD = 40; // dB: the ends of the scale of colours
const networks = {};
let layerRows = [],
  layerAt = 0;
const openLoops = {}; // by build, the names of loops whose layers are drawn

const quality = (db) =>
  db === null || db === undefined
    ? "transparent"
    : `hsl(${Math.round(120 * Math.min(1, Math.max(0, (db - BAD) / (GOOD - BAD))))} 65% 45%)`;
const decibels = (db) => (db === null || db === undefined ? "" : `${db.toFixed(1)} dB`);
// names of one network differ at their ends
const tail = (text, most) => (text.length > most ? `\u2026${text.slice(1 - most)}` : text);
const link = (text, hash) => made("a", text, { href: `#${hash}` });
const tensorLink = (id, name) => link(name, `${id}/tensor/${encodeURIComponent(name)}`);

async function networkOf(id) {
  networks[id] ||= await (await asked(`api/builds/${encodeURIComponent(id)}/network`)).json();
  return networks[id];
}

async function showNetwork(id, wanted) {
  const found = await networkOf(id),
    open = (openLoops[id] ||= new Set()),
    inner = loopOf(found, wanted);
  if (inner) open.add(inner);
  layerRows = shownBoxes(found, open);
  const count = found.loops.length,
    loops = count ? `, ${count} loop${count === 1 ? "" : "s"} (a click opens it)` : "";
  by("legend").textContent =
    `${found.layers.length} layer${found.layers.length === 1 ? "" : "s"}${loops}; ` +
    `colour: SQNR of the result, red ${BAD} dB to green ${GOOD} dB; ` +
    "width of the bar: cycles; dashed: on the host";
  drawLayers(id, found);
  const at = layerRows.findIndex((row) => row.name === wanted);
  chooseLayer(id, at < 0 ? 0 : at, at >= 0);
}

function drawLayers(id, found) {
  const maker = {},
    depth = [],
    rows = [],
    known = new Set(found.tensors.map((one) => one.id));
  layerRows.forEach((row, at) =>
    row.gives.forEach((name) => {
      maker[name] = at;
    }),
  );
  layerRows.forEach((row, at) => {
    depth[at] = Math.max(-1, ...row.takes.map((name) => depth[maker[name]] ?? -1)) + 1;
    (rows[depth[at]] ||= []).push(at);
  });
  const width = 210,
    height = 38,
    wide = Math.max(1, ...rows.map((row) => row.length));
  const most = Math.max(1, ...layerRows.map((row) => row.cycles || 0)),
    place = [];
  rows.forEach((row, y) =>
    row.forEach((at, x) => {
      place[at] = [x * width + 2, y * height + 4];
    }),
  );
  const svg = drawn("svg", {
    class: "nodes",
    width: wide * width,
    height: rows.length * height + 8,
    viewBox: `0 0 ${wide * width} ${rows.length * height + 8}`,
  });
  layerRows.forEach((row, at) =>
    row.takes.forEach((name) => {
      if (maker[name] === undefined) return;
      const [x, y] = place[maker[name]],
        [u, v] = place[at];
      svg.append(
        drawn("path", { d: `M${x + 90},${y + 26} C${x + 90},${y + 34} ${u + 90},${v - 8} ${u + 90},${v}` }),
      );
    }),
  );
  layerRows.forEach((row, at) => {
    const [x, y] = place[at],
      box = drawn("g", {
        "data-at": at,
        class: row.layers ? "loop" : row.loop ? "inner" : "",
        ...(row.layers ? { "aria-expanded": row.opened } : {}),
        role: "button",
        tabindex: -1,
        "aria-label": `${row.name}, ${row.op}`,
      });
    const label = drawn("text", { x: x + 12, y: y + 17 }),
      bar = { x, y: y + 23, width: (190 * (row.cycles || 0)) / most, height: 3 };
    const mark = row.layers ? `${row.opened ? "\u25be" : "\u25b8"} ${row.steps} x ` : "",
      name = row.layers ? row.loop : row.name;
    label.textContent = `${mark}${row.op} ${tail(name, Math.max(6, 26 - row.op.length - mark.length))}`;
    box.append(
      drawn("rect", {
        x,
        y,
        width: 190,
        height: 26,
        rx: 4,
        ...(row.npu ? {} : { "stroke-dasharray": "4 3" }),
      }),
      drawn("rect", { x, y, width: 7, height: 26, style: `fill:${quality(row.sqnr)};stroke:none` }),
      drawn("rect", { ...bar, style: "fill:var(--chosen);stroke:none" }),
      label,
    );
    box.addEventListener("click", () => {
      if (row.layers) turnLoop(id, row);
      location.hash = `${id}/network/${encodeURIComponent(row.name)}`;
    });
    svg.append(box);
  });
  by("layers").replaceChildren(svg);
  by("layers").dataset.id = id;
  by("layers").dataset.tensors = JSON.stringify([...known, ...Object.keys(found.called)]);
}

// Opens a loop, or closes it.
function turnLoop(id, row) {
  const open = openLoops[id];
  if (!open.delete(row.loop)) open.add(row.loop);
  showNetwork(id, row.name);
}

function chooseLayer(id, at, scroll) {
  layerAt = at;
  const row = layerRows[at];
  if (!row) {
    by("layer").replaceChildren(made("p", "The network has no layers"));
    return;
  }
  for (const box of by("layers").querySelectorAll("g"))
    box.classList.toggle("chosen", Number(box.dataset.at) === at);
  if (scroll) by("layers").querySelector("g.chosen")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  const known = new Set(JSON.parse(by("layers").dataset.tensors)),
    list = made("dl");
  const facts = {
    operator: row.op,
    where: row.npu ? "NPU" : `host: ${row.reason}`,
    SQNR: decibels(row.sqnr),
    cycles: row.cycles?.toLocaleString("en"),
    MACs: row.macs?.toLocaleString("en"),
    bytes: row.bytes?.toLocaleString("en"),
    "energy, uJ": row.energy_uj?.toPrecision(4),
    limit: row.limit,
    attributes: row.attributes,
    module: row.source?.module,
    source: row.source?.file && `${row.source.file}:${row.source.line}`,
    steps: row.layers ? row.steps : "",
    loop: row.layers ? "" : row.loop,
  };
  for (const [name, value] of Object.entries(facts))
    if (value) {
      const box = made("div");
      box.append(made("dt", name), made("dd", value));
      list.append(box);
    }
  const parts = [made("h3", row.name), list];
  for (const side of ["inputs", "outputs"]) {
    const names = made("ul");
    for (const name of row[side]) {
      const item = made("li");
      item.append(known.has(name) ? tensorLink(id, name) : name);
      names.append(item);
    }
    parts.push(made("h4", side), names);
  }
  if (row.layers) parts.push(...loopParts(id, row, known));
  by("layer").replaceChildren(...parts);
}

// What a loop carries and stacks, and its layers.
function loopParts(id, row, known) {
  const tensor = (name) => (known.has(name) ? tensorLink(id, name) : made("span", name));
  const list = (title, rows) => {
    const names = made("ul");
    for (const parts of rows) {
      const item = made("li");
      item.append(...parts);
      names.append(item);
    }
    return rows.length ? [made("h4", title), names] : [];
  };
  const carried = row.carries.map((one) => [
    tensor(one.now),
    ": at first ",
    tensor(one.initial),
    ", then ",
    tensor(one.following),
    "; behind the loop ",
    tensor(one.last),
  ]);
  const layers = row.layers.map((name) => [link(name, `${id}/network/${encodeURIComponent(name)}`)]);
  const button = made("button", row.opened ? "Close" : "Open", { onclick: () => turnLoop(id, row) });
  return [
    button,
    ...list("carries from step to step", carried),
    ...list(
      "stacks of all steps",
      row.stacks.map((name) => [tensor(name)]),
    ),
    ...list("layers of a step", layers),
  ];
}

by("layers").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && layerRows[layerAt]?.layers) {
    turnLoop(by("layers").dataset.id, layerRows[layerAt]);
    return;
  }
  const step = { ArrowDown: 1, ArrowUp: -1, ArrowRight: 1, ArrowLeft: -1, j: 1, k: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  event.stopPropagation();
  const at = Math.min(Math.max(layerAt + step, 0), layerRows.length - 1),
    id = by("layers").dataset.id;
  chooseLayer(id, at, true);
  history.replaceState(null, "", `#${id}/network/${encodeURIComponent(layerRows[at].name)}`);
});
by("find").addEventListener("input", () => {
  const wanted = by("find").value.toLowerCase();
  const fits = (row) => boxFits(row, wanted);
  for (const box of by("layers").querySelectorAll("g"))
    box.classList.toggle("dim", Boolean(wanted) && !fits(layerRows[Number(box.dataset.at)]));
  const at = layerRows.findIndex(fits);
  if (wanted && at >= 0) chooseLayer(by("layers").dataset.id, at, true);
});

// --- one tensor
let plotting = null;
function plots(id) {
  plotting ||= new Promise((done, failed) => {
    document.head.append(
      made("script", "", {
        src: `builds/${id}/plots.js`,
        onload: done,
        onerror: () => failed(new Error("the build has no plotting library")),
      }),
    );
  });
  return plotting;
}

const ink = () => getComputedStyle(document.body).color;
async function plot(id, box, spec) {
  await plots(id);
  const axis = { labelColor: ink(), titleColor: ink(), gridOpacity: 0.25, domainColor: ink() };
  const config = {
    background: "transparent",
    axis,
    legend: { labelColor: ink(), titleColor: ink() },
    title: { color: ink(), anchor: "start", fontSize: 13 },
  };
  const width = Math.max(220, Math.min(640, by("title").parentElement.clientWidth - 90));
  const inner = made("div"); // the library gives its own place a layout
  box.replaceChildren(inner);
  await window.vegaEmbed(
    inner,
    { width, height: 260, config, ...spec },
    { mode: "vega-lite", renderer: "svg", actions: false },
  );
}

async function showTensor(id, name) {
  const one = await (
    await asked(`api/builds/${encodeURIComponent(id)}/tensor?name=${encodeURIComponent(name)}`)
  ).json();
  const facts = {
    shape: one.shape?.join(" x "),
    "in every step of": one.loop && `${one.loop}, ${one.steps} steps`,
    type: one.bits ? `${one.dtype}, ${one.bits} bits` : one.dtype,
    scale: one.scale,
    "zero point": one.zero_point,
    SQNR: decibels(one.sqnr),
    cosine: one.cosine?.toFixed(5),
    "codes at an end": one.ends === null ? "" : `${(100 * one.ends).toFixed(2)} %`,
    observed: one.observed?.map((v) => v.toPrecision(5)).join(" to "),
    threshold: one.threshold?.map((v) => v.toPrecision(5)).join(" to "),
    method: one.method,
  };
  const boxes = Object.entries(facts)
    .filter(([, value]) => value !== undefined && value !== null && value !== "")
    .map(([key, value]) => {
      const box = made("div");
      box.append(made("dt", key), made("dd", String(value)));
      return box;
    });
  for (const [side, names] of [
    ["made by", one.made_by],
    ["read by", one.read_by],
  ]) {
    const box = made("div"),
      held = made("dd");
    names.forEach((layer) => held.append(link(layer, `${id}/network/${encodeURIComponent(layer)}`), " "));
    box.append(made("dt", side), held);
    if (names.length) boxes.push(box);
  }
  by("facts").replaceChildren(made("h3", name), ...boxes);
  by("suggestions").replaceChildren(
    ...(one.suggestions || []).map((text) =>
      made("li", typeof text === "string" ? text : JSON.stringify(text)),
    ),
  );
  by("histogram").replaceChildren();
  by("pairs").replaceChildren();
  if (one.histogram) await plot(id, by("histogram"), histogram(one));
  if (one.pairs[0].length) await plot(id, by("pairs"), compared(one));
  else
    by("pairs").textContent =
      "No values of this tensor are kept: it is an input, or the float network has none of its name.";
}

function histogram(one) {
  const { counts, lo, hi } = one.histogram,
    step = (hi - lo) / counts.length;
  const values = counts.map((count, i) => ({
    from: lo + i * step,
    to: lo + (i + 1) * step,
    count: count + 1,
    seen: count,
  }));
  const bars = {
    data: { values },
    mark: { type: "bar", color: "#2f6fb0" },
    encoding: {
      x: { field: "from", type: "quantitative", title: "value", scale: { nice: false, zero: false } },
      x2: { field: "to" },
      y: {
        field: "count",
        type: "quantitative",
        scale: { type: "log", domainMin: 1 },
        title: "values seen, plus 1",
      },
      y2: { datum: 1 },
      tooltip: [{ field: "from" }, { field: "to" }, { field: "seen" }],
    },
  };
  const ends = (one.threshold || []).map((at) => ({ at }));
  return {
    title: "What calibration saw, and the threshold",
    layer: [
      bars,
      {
        data: { values: ends },
        mark: { type: "rule", color: "#d9822b", strokeWidth: 2 },
        encoding: { x: { field: "at", type: "quantitative" } },
      },
    ],
  };
}

function compared(one) {
  const [real, codes] = one.pairs,
    values = real.map((value, i) => ({ real: value, quantised: codes[i], error: codes[i] - value }));
  const range = [Math.min(...real, ...codes), Math.max(...real, ...codes)];
  const line = {
    data: { values: range.map((v) => ({ v })) },
    mark: { type: "line", color: "#7b8894" },
    encoding: { x: { field: "v", type: "quantitative" }, y: { field: "v", type: "quantitative" } },
  };
  const points = {
    data: { values },
    mark: { type: "point", size: 18, color: "#d9822b" },
    encoding: {
      x: { field: "real", type: "quantitative", title: "float" },
      y: { field: "quantised", type: "quantitative", title: "quantised" },
      tooltip: [{ field: "real" }, { field: "quantised" }, { field: "error" }],
    },
  };
  return { title: `Float and quantised: ${values.length} values of one sample`, layer: [line, points] };
}
