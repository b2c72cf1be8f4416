"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const FIGURES = JSON.parse(document.getElementById("figures").textContent);
const el = (tag, attrs = {}, ...kids) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs))
    k === "onclick" ? e.addEventListener("click", v) : e.setAttribute(k, v);
  e.append(...kids.filter((k) => k !== null && k !== undefined));
  return e;
};
const has = (v) => v !== null && v !== undefined;
const num = (v, digits = 3) =>
  !has(v)
    ? ""
    : typeof v !== "number"
      ? String(v)
      : Math.abs(v) >= 1e4 && Number.isInteger(v)
        ? v.toLocaleString("en")
        : String(+v.toPrecision(digits + 1));
const bytes = (v) =>
  !has(v)
    ? ""
    : v < 1024
      ? v + " B"
      : v < 1048576
        ? (v / 1024).toFixed(1) + " KiB"
        : (v / 1048576).toFixed(2) + " MiB";
const percent = (v) => (has(v) ? (100 * v).toFixed(1) + " %" : "");
const $ = (id) => document.getElementById(id);
const tensorOf = new Map(D.tensors.map((t) => [t.id, t]));

// Colours of figures: the page's own, without a background.
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
const CONFIG = { ...(dark ? FIGURES.dark : FIGURES.light), background: null };

// Draws a figure: a specification, with one row of data where it is a template.
// `pick` gets the row of a mark that is clicked.
function figure(spec, row, pick) {
  const box = el("div", { class: "figure" });
  if (!spec) return box;
  const whole = {
    ...spec,
    config: { ...CONFIG, ...spec.config },
    ...(row ? { data: { values: [row] } } : {}),
  };
  const options = {
    mode: "vega-lite",
    renderer: whole.width * whole.height > 4e6 ? "svg" : "canvas",
    actions: { export: true, source: false, compiled: false, editor: false },
  };
  vegaEmbed(box, whole, options).then(({ view }) => {
    if (pick) view.addEventListener("click", (event, item) => item && item.datum && pick(item.datum));
  });
  return box;
}

const MANY = 8; // rows of a table that can be filtered

// A table that sorts by a click on a heading, and shows the rows with some words in them.
// Columns: [title, key, format, class, bar maximum].
function table(columns, rows, pick) {
  const body = el("tbody");
  const state = { key: null, up: true, words: "" };
  const says = (row) =>
    columns.some(([, key, format]) =>
      String((format || num)(row[key]))
        .toLowerCase()
        .includes(state.words),
    );
  const fill = () => {
    const kept = state.words ? rows.filter(says) : rows;
    const sorted =
      state.key === null
        ? kept
        : [...kept].sort((a, b) => {
            const [x, y] = [a[state.key], b[state.key]];
            const order = !has(x) ? 1 : !has(y) ? -1 : x < y ? -1 : x > y ? 1 : 0;
            return state.up || !has(x) || !has(y) ? order : -order;
          });
    body.replaceChildren(
      ...sorted.map((row) =>
        el(
          "tr",
          { onclick: () => pick && pick(row) },
          ...columns.map(([, key, format, cls, top]) => {
            const cell = el(
              "td",
              { class: cls || "", title: cls === "text" ? num(row[key]) : "" },
              (format || num)(row[key]),
            );
            if (top && has(row[key]))
              cell.append(
                " ",
                el("span", {
                  class: "bar",
                  style: `width:${Math.max(1, Math.round((46 * row[key]) / top))}px`,
                }),
              );
            return cell;
          }),
        ),
      ),
    );
  };
  const head = el(
    "tr",
    {},
    ...columns.map(([title, key, , cls]) =>
      el(
        "th",
        {
          class: cls || "",
          onclick: () => {
            state.up = state.key === key ? !state.up : true;
            state.key = key;
            fill();
          },
        },
        title,
      ),
    ),
  );
  fill();
  const whole = el("table", {}, el("thead", {}, head), body);
  if (rows.length < MANY) return whole;
  const search = el("input", { type: "search", placeholder: "filter", "aria-label": "filter rows" });
  search.addEventListener("input", () => {
    state.words = search.value.toLowerCase();
    fill();
  });
  return el("div", {}, search, whole);
}

function histogram(t) {
  const h = t.histogram,
    [low, high] = t.threshold || [null, null];
  if (!h || !h.counts.length) return el("p", { class: "soft" }, "no statistics were asked of this tensor");
  const step = (h.hi - h.lo) / h.counts.length,
    all = h.counts.reduce((a, b) => a + b, 0);
  const inside = h.counts.reduce(
    (sum, c, i) => sum + (h.lo + (i + 1) * step > low && h.lo + i * step < high ? c : 0),
    0,
  );
  const beyond = t.threshold && all ? 1 - inside / all : 0;
  return el(
    "div",
    {},
    figure(FIGURES.histogram, { ...h, low, high }),
    el(
      "div",
      { class: "legend" },
      el("span", {}, el("i", { style: "background:var(--a)" }), "count (logarithmic)"),
      el("span", {}, el("i", { style: "background:var(--d)" }), "chosen thresholds"),
      el("span", {}, beyond > 0 ? `about ${num(100 * beyond, 2)} % of the values beyond` : ""),
    ),
  );
}

function channels(t) {
  if (!t.channels) return null;
  const [low, high] = t.threshold || [null, null];
  return el(
    "div",
    {},
    el("h2", {}, "Ranges of channels"),
    figure(FIGURES.channels, { lowest: t.channels[0], highest: t.channels[1], low, high }),
  );
}

// What the numbers of a tensor suggest, the most pressing first.
function advice(t) {
  return t.suggestions && t.suggestions.length
    ? el(
        "ul",
        { class: "advice" },
        ...t.suggestions.map(([kind, text]) => el("li", {}, el("b", {}, kind), " " + text)),
      )
    : null;
}

function facts(pairs) {
  return el(
    "dl",
    { class: "kv" },
    ...pairs
      .filter(([, v]) => has(v) && v !== "")
      .flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, String(v))]),
  );
}

function tensorPanel(t) {
  return [
    el("h2", {}, t.id),
    facts([
      ["shape", t.shape.join(" x ")],
      ["stored as", t.dtype],
      ["scale", has(t.scale) ? num(t.scale, 5) : ""],
      ["zero point", t.zero_point],
      ["method", t.method],
      ["observed", t.observed ? t.observed.map((v) => num(v)).join(" .. ") : ""],
      ["threshold", t.threshold ? t.threshold.map((v) => num(v)).join(" .. ") : ""],
      ["SQNR", has(t.sqnr) ? t.sqnr.toFixed(1) + " dB" : ""],
      ["cosine", has(t.cosine) ? t.cosine.toFixed(5) : ""],
      ["codes at an end of the range", t.ends ? percent(t.ends) : ""],
    ]),
    histogram(t),
    channels(t),
    advice(t),
  ].filter((p) => p !== null);
}

function nodePanel(n) {
  const parts = [
    el("h2", {}, n.name),
    facts([
      ["operator", n.op],
      ["runs on", n.npu ? "NPU" : "host"],
      ["reason", n.reason],
      ["source nodes", (n.origin || []).join(", ")],
      ["attributes", n.attributes],
      ["MACs", num(n.macs)],
      ["cycles", num(n.cycles)],
      ["utilisation", percent(n.utilisation)],
      ["external bytes", bytes(n.bytes)],
      ["energy, uJ", has(n.energy_uj) ? n.energy_uj.toPrecision(4) : ""],
      ["limited by", n.limit],
      ["waits for", n.stall],
      ["schedule time", num(n.schedule)],
      ["lower bound", num(n.bound)],
    ]),
  ];
  for (const id of n.outputs) if (tensorOf.has(id)) parts.push(...tensorPanel(tensorOf.get(id)));
  return parts;
}

// What a loop carries and stacks, and its layers, each of which opens below.
function loopPanel(loop) {
  const below = el("div");
  const rows = D.nodes.filter((n) => n.loop === loop.loop);
  const carried = (one) => `${one.now} (at first ${one.initial}, behind the loop ${one.last})`;
  return [
    el("h2", {}, `loop ${loop.loop}`),
    facts([
      ["steps", num(loop.steps)],
      ["carries", loop.carries.map(carried).join(", ")],
      ["stacks", loop.stacks.join(", ")],
      ["reads", loop.reads.join(", ")],
      ...(loop.inner || []).map((one) => ["loop in its body", `${one.loop}: ${num(one.steps)} steps`]),
      ["cycles of all steps", num(rows.reduce((sum, n) => sum + (n.cycles || 0), 0))],
    ]),
    table(
      [
        ["layer of a step", "name", null, "text"],
        ["operator", "op", null, "text"],
        ...(loop.inner ? [["in the loop", "inner", null, "text"]] : []),
        ["SQNR dB", "sqnr", (v) => (has(v) ? v.toFixed(1) : "")],
      ],
      rows,
      (n) => below.replaceChildren(...nodePanel(n)),
    ),
    below,
  ];
}

// A table beside the detail of its chosen row.
const split = (left, right) => el("div", { class: "split" }, el("div", { class: "left" }, left), right);

function layers() {
  const top = (k) => Math.max(...D.nodes.map((n) => n[k] || 0));
  const right = el("div", { class: "right" }),
    slow = D.nodes.reduce((a, b) => ((b.cycles || 0) > (a.cycles || 0) ? b : a), D.nodes[0]);
  if (slow)
    right.replaceChildren(
      el("p", { class: "soft" }, "The slowest layer; click another for its detail."),
      ...nodePanel(slow),
    );
  const columns = [
    ["layer", "name", null, "text"],
    ["operator", "op", null, "text"],
    ...(D.loops ? [["loop", "loop", null, "text"]] : []),
    ["on", "npu", (v) => (v ? "NPU" : "host")],
    ["MACs", "macs"],
    ["cycles", "cycles", null, "", top("cycles")],
    ["utilisation", "utilisation", percent],
    ["bytes", "bytes", bytes],
    ...(D.energy ? [["uJ", "energy_uj", (v) => (has(v) ? v.toPrecision(3) : ""), "", top("energy_uj")]] : []),
    ["limit", "limit", null, "text"],
    ["SQNR dB", "sqnr", (v) => (has(v) ? v.toFixed(1) : "")],
  ];
  $("layers").append(
    split(
      table(columns, D.nodes, (n) => right.replaceChildren(...nodePanel(n))),
      right,
    ),
  );
}

function graph() {
  const right = el("div", { class: "right" }, el("p", { class: "soft" }, "Click a layer for its detail.")),
    panels = new Map(D.nodes.map((n) => [n.name, () => nodePanel(n)]));
  for (const loop of D.loops || []) panels.set(`loop ${loop.loop}`, () => loopPanel(loop));
  const picture = figure(
    FIGURES.network,
    null,
    (row) => panels.has(row.name) && right.replaceChildren(...panels.get(row.name)()),
  );
  $("graph").append(split(picture, right));
}

// The tensor to look at first: the most pressing advice, else the lowest SQNR.
const pressing = (t) =>
  (t.suggestions && t.suggestions.length ? 1000 * t.suggestions[0][2] : 0) - (has(t.sqnr) ? t.sqnr : 500);

function tensors() {
  const right = el(
    "div",
    { class: "right" },
    el("p", { class: "soft" }, "Click a tensor for its histogram."),
  );
  const rows = D.tensors.map((t) => ({
    ...t,
    size: t.shape.join("x"),
    lo: t.threshold && t.threshold[0],
    hi: t.threshold && t.threshold[1],
    advice: (t.suggestions || []).map(([kind]) => kind).join(", "),
  }));
  const columns = [
    ["tensor", "id", null, "text"],
    ["shape", "size"],
    ["stored as", "dtype"],
    ["scale", "scale"],
    ["zero", "zero_point"],
    ["low", "lo"],
    ["high", "hi"],
    ["method", "method"],
    [
      "SQNR dB",
      "sqnr",
      (v) => (has(v) ? v.toFixed(1) : ""),
      "",
      Math.max(1, ...rows.map((r) => r.sqnr || 0)),
    ],
    ["look at", "advice", null, "text"],
  ];
  const first = rows.reduce((a, b) => (pressing(b) > pressing(a) ? b : a), rows[0]);
  if (first) right.replaceChildren(...tensorPanel(first));
  $("tensors").append(
    el(
      "div",
      { class: "scroll" },
      figure(
        FIGURES.quality,
        null,
        (row) => tensorOf.has(row.id) && right.replaceChildren(...tensorPanel(tensorOf.get(row.id))),
      ),
    ),
    split(
      table(columns, rows, (t) => right.replaceChildren(...tensorPanel(t))),
      right,
    ),
  );
}

function suggestions() {
  const right = el("div", { class: "right" }, el("p", { class: "soft" }, "Click a row for its tensor.")),
    box = $("suggestions");
  const rows = D.tensors
    .flatMap((t) =>
      (t.suggestions || []).map(([kind, text, weight]) => ({ t, id: t.id, kind, text, weight })),
    )
    .sort((a, b) => b.weight - a.weight);
  if (!rows.length) {
    box.append(el("p", { class: "soft" }, "Nothing stands out in the statistics of any tensor."));
    return;
  }
  right.replaceChildren(...tensorPanel(rows[0].t));
  const columns = [
    ["tensor", "id", null, "text"],
    ["what", "kind", null, "text"],
    ["why, and what to try", "text", null, "long"],
  ];
  box.append(
    split(
      table(columns, rows, (r) => right.replaceChildren(...tensorPanel(r.t))),
      right,
    ),
  );
}

function timeline() {
  const box = $("timeline");
  if (!FIGURES.timeline) {
    box.append(el("p", { class: "soft" }, "no commands ran on the NPU"));
    return;
  }
  box.append(
    el("h2", {}, `Timeline: ${num(D.timeline.cycles)} cycles`),
    el(
      "p",
      { class: "soft" },
      "The wheel zooms, dragging moves, a double click shows all; a bar names its layer.",
    ),
    el("div", { class: "scroll" }, figure(FIGURES.timeline)),
  );
  if (D.timeline.shortened) box.append(el("p", { class: "soft" }, D.timeline.shortened));
}

function memory() {
  const M = D.memory;
  $("memory").append(
    facts([
      ["weights and tables", bytes(M.const_bytes)],
      ["activations in external memory", bytes(M.data_bytes)],
      ["lower bound of that", bytes(M.bound_bytes)],
      ["local memory", bytes(M.local_bytes)],
      ["local memory in use, at most", bytes(M.local_used)],
    ]),
    el("div", { class: "scroll" }, figure(FIGURES.memory)),
  );
}

function roofline() {
  if (!FIGURES.roofline) {
    $("roofline").append(el("p", { class: "soft" }, "no layer with multiply-accumulates runs on the NPU"));
    return;
  }
  $("roofline").append(el("div", { class: "scroll" }, figure(FIGURES.roofline)));
}

function notes() {
  const box = $("notes");
  for (const [title, columns, rows] of D.notes) {
    box.append(el("h2", {}, title));
    box.append(
      rows.length
        ? table(
            columns.map((c, i) => [c, i, null, "text"]),
            rows,
          )
        : el("p", { class: "soft" }, "none"),
    );
  }
}

// A build writes graph.js beside this page: scripts are all that a page opened from a disk may load.
function build() {
  const box = $("build"),
    script = el("script", { src: "graph.js" });
  box.append(el("h2", {}, "The stages of the last build: what ran, and what was in the cache"));
  script.addEventListener("load", () =>
    box.append(el("div", { class: "scroll" }, figure(window.npuflowGraph))),
  );
  script.addEventListener("error", () =>
    box.append(el("p", { class: "soft" }, "graph.js, which a build writes beside this page, is not here.")),
  );
  box.append(script);
}

// A build writes out/NAME/report.html: the folder is the recipe's name, which the page itself cannot know.
const folder = /\/([^/]+)\/report\.html$/.exec(location.pathname);
$("title").textContent = document.title = (folder ? decodeURIComponent(folder[1]) + " · " : "") + D.title;
$("warnings").append(
  ...D.warnings.map((w) =>
    el("p", { class: "warning" }, el("b", {}, w.message), w.hint ? " Try: " + w.hint : ""),
  ),
);
$("tiles").append(
  ...D.tiles.map(([label, value]) =>
    el(
      "div",
      { class: "tile" },
      el("b", {}, typeof value === "number" ? num(value) : value),
      el("span", {}, label),
    ),
  ),
);
const TABS = {
  layers: "Layers",
  graph: "Graph",
  tensors: "Tensors",
  suggestions: "Suggestions",
  timeline: "Timeline",
  memory: "Memory",
  roofline: "Roofline",
  notes: "Placement and notes",
  build: "Build",
};
// each when it is first shown
const FILL = { layers, graph, tensors, suggestions, timeline, memory, roofline, notes, build };
const show = (id) => {
  for (const k of Object.keys(TABS)) {
    $(k).classList.toggle("on", k === id);
    $("tab-" + k).classList.toggle("on", k === id);
  }
  if (FILL[id]) {
    FILL[id]();
    delete FILL[id];
  }
};
$("tabs").append(
  ...Object.entries(TABS).map(([id, label]) =>
    el("button", { id: "tab-" + id, onclick: () => show(id) }, label),
  ),
);
const wanted = location.hash.replace("#show=", ""); // no element has that id, so the page does not scroll
show(TABS[wanted] ? wanted : "layers");
