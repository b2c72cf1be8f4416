"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const NS = "http://www.w3.org/2000/svg";
const el = (tag, attrs = {}, ...kids) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) k === "onclick" ? e.addEventListener("click", v) : e.setAttribute(k, v);
  e.append(...kids.filter((k) => k !== null && k !== undefined));
  return e;
};
const svg = (tag, attrs = {}, ...kids) => {
  const e = document.createElementNS(NS, tag);
  for (const [k, v] of Object.entries(attrs)) k === "onclick" ? e.addEventListener("click", v) : e.setAttribute(k, v);
  e.append(...kids);
  return e;
};
const has = (v) => v !== null && v !== undefined;
const num = (v, digits = 3) => (!has(v) ? "" : typeof v !== "number" ? String(v) : Math.abs(v) >= 1e4 && Number.isInteger(v) ? v.toLocaleString("en") : String(+v.toPrecision(digits + 1)));
const bytes = (v) => (!has(v) ? "" : v < 1024 ? v + " B" : v < 1048576 ? (v / 1024).toFixed(1) + " KiB" : (v / 1048576).toFixed(2) + " MiB");
const percent = (v) => (has(v) ? (100 * v).toFixed(1) + " %" : "");
const $ = (id) => document.getElementById(id);
const tensorOf = new Map(D.tensors.map((t) => [t.id, t]));
const KINDS = { LOAD: "var(--a)", STORE: "var(--b)", TENSOR: "var(--c)", VECTOR: "var(--d)" };

// A table that sorts by a click on a heading. Columns: [title, key, format, class, bar maximum].
function table(columns, rows, pick) {
  const body = el("tbody");
  const state = { key: null, up: true };
  const fill = () => {
    const sorted = state.key === null ? rows : [...rows].sort((a, b) => {
      const [x, y] = [a[state.key], b[state.key]];
      const order = !has(x) ? 1 : !has(y) ? -1 : x < y ? -1 : x > y ? 1 : 0;
      return state.up || !has(x) || !has(y) ? order : -order;
    });
    body.replaceChildren(...sorted.map((row) => el("tr", { onclick: () => pick && pick(row) }, ...columns.map(([, key, format, cls, top]) => {
      const cell = el("td", { class: cls || "", title: cls === "text" ? num(row[key]) : "" }, (format || num)(row[key]));
      if (top && has(row[key])) cell.append(" ", el("span", { class: "bar", style: `width:${Math.max(1, Math.round(46 * row[key] / top))}px` }));
      return cell;
    }))));
  };
  const head = el("tr", {}, ...columns.map(([title, key, , cls]) => el("th", { class: cls || "", onclick: () => {
    state.up = state.key === key ? !state.up : true; state.key = key; fill();
  } }, title)));
  fill();
  return el("table", {}, el("thead", {}, head), body);
}

function histogram(t) {
  const h = t.histogram, W = 420, H = 150, [low, high] = t.threshold || [];
  if (!h || !h.counts.length) return el("p", { class: "soft" }, "no statistics were asked of this tensor");
  const lo = has(low) ? Math.min(h.lo, low) : h.lo, hi = has(high) ? Math.max(h.hi, high) : h.hi, span = hi - lo || 1;
  const top = Math.max(...h.counts.map((c) => Math.log1p(c))), n = h.counts.length, step = (h.hi - h.lo) / n;
  const x = (v) => (v - lo) / span * W;
  const s = svg("svg", { viewBox: `-2 0 ${W + 4} ${H + 34}`, width: W, role: "img" });
  if (t.threshold) for (const [a, b] of [[lo, low], [high, hi]]) if (b > a) s.append(svg("rect", { x: x(a), y: 0, width: x(b) - x(a), height: H, fill: "var(--d)", "fill-opacity": 0.13 }));
  h.counts.forEach((c, i) => {
    const height = top ? Math.log1p(c) / top * H : 0, left = x(h.lo + i * step);
    s.append(svg("rect", { x: left, y: H - height, width: Math.max(x(h.lo + (i + 1) * step) - left - 0.3, 0.5), height, fill: "var(--a)" }));
  });
  if (t.threshold) for (const v of t.threshold) {
    s.append(svg("line", { x1: x(v), x2: x(v), y1: 0, y2: H, stroke: "var(--d)", "stroke-width": 1.5 }));
    s.append(svg("text", { x: Math.min(Math.max(x(v), 24), W - 24), y: H + 28, "text-anchor": "middle" }, num(v)));
  }
  s.append(svg("text", { x: 0, y: H + 13, class: "soft" }, num(lo)), svg("text", { x: W, y: H + 13, "text-anchor": "end", class: "soft" }, num(hi)));
  const inside = t.threshold ? h.counts.reduce((sum, c, i) => sum + (h.lo + (i + 1) * step > low && h.lo + i * step < high ? c : 0), 0) : 0;
  const all = h.counts.reduce((a, b) => a + b, 0), beyond = t.threshold && all ? 1 - inside / all : 0;
  return el("div", {}, s, el("div", { class: "legend" }, el("span", {}, el("i", { style: "background:var(--a)" }), "count (logarithmic)"), el("span", {}, el("i", { style: "background:var(--d)" }), "chosen thresholds"),
    el("span", {}, beyond > 0 ? `about ${num(100 * beyond, 2)} % of the values beyond` : "")));
}

// What the numbers of a tensor suggest, the most pressing first.
function advice(t) {
  return t.suggestions && t.suggestions.length ? el("ul", { class: "advice" }, ...t.suggestions.map(([kind, text]) => el("li", {}, el("b", {}, kind), " " + text))) : null;
}

function facts(pairs) {
  return el("dl", { class: "kv" }, ...pairs.filter(([, v]) => has(v) && v !== "").flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, String(v))]));
}

function tensorPanel(t) {
  return [el("h2", {}, t.id), facts([["shape", t.shape.join(" x ")], ["stored as", t.dtype], ["scale", has(t.scale) ? num(t.scale, 5) : ""], ["zero point", t.zero_point],
    ["method", t.method], ["observed", t.observed ? t.observed.map((v) => num(v)).join(" .. ") : ""], ["threshold", t.threshold ? t.threshold.map((v) => num(v)).join(" .. ") : ""],
    ["SQNR", has(t.sqnr) ? t.sqnr.toFixed(1) + " dB" : ""], ["cosine", has(t.cosine) ? t.cosine.toFixed(5) : ""], ["codes at an end of the range", t.ends ? percent(t.ends) : ""]]), histogram(t), advice(t)].filter((p) => p !== null);
}

function nodePanel(n) {
  const parts = [el("h2", {}, n.name), facts([["operator", n.op], ["runs on", n.npu ? "NPU" : "host"], ["reason", n.reason], ["source nodes", (n.origin || []).join(", ")],
    ["attributes", n.attributes], ["MACs", num(n.macs)], ["cycles", num(n.cycles)], ["utilisation", percent(n.utilisation)], ["external bytes", bytes(n.bytes)], ["limited by", n.limit], ["waits for", n.stall], ["schedule time", num(n.schedule)], ["lower bound", num(n.bound)]])];
  for (const id of n.outputs) if (tensorOf.has(id)) parts.push(...tensorPanel(tensorOf.get(id)));
  return parts;
}

function layers() {
  const top = (k) => Math.max(...D.nodes.map((n) => n[k] || 0));
  const right = el("div", { class: "right" }), slow = D.nodes.reduce((a, b) => ((b.cycles || 0) > (a.cycles || 0) ? b : a), D.nodes[0]);
  if (slow) right.replaceChildren(el("p", { class: "soft" }, "The slowest layer; click another for its detail."), ...nodePanel(slow));
  const columns = [["layer", "name", null, "text"], ["operator", "op", null, "text"], ["on", "npu", (v) => (v ? "NPU" : "host")], ["MACs", "macs"], ["cycles", "cycles", null, "", top("cycles")],
    ["utilisation", "utilisation", percent], ["bytes", "bytes", bytes], ["limit", "limit", null, "text"], ["SQNR dB", "sqnr", (v) => (has(v) ? v.toFixed(1) : "")]];
  $("layers").append(el("div", { class: "split" }, el("div", { class: "left" }, table(columns, D.nodes, (n) => right.replaceChildren(...nodePanel(n)))), right));
}

function graph() {
  const W = 150, H = 26, GX = 16, GY = 20, right = el("div", { class: "right" }, el("p", { class: "soft" }, "Click a node for its detail."));
  const maker = new Map(); D.nodes.forEach((n, i) => n.outputs.forEach((o) => maker.set(o, i)));
  const depth = D.nodes.map(() => 0), lane = D.nodes.map(() => 0), used = new Map();
  D.nodes.forEach((n, i) => { for (const v of n.inputs) if (maker.has(v)) depth[i] = Math.max(depth[i], depth[maker.get(v)] + 1); });
  D.nodes.forEach((n, i) => {   // straight below the first producer where that place is free
    const taken = used.get(depth[i]) || new Set(); used.set(depth[i], taken);
    const first = n.inputs.find((v) => maker.has(v));
    let want = first === undefined ? 0 : lane[maker.get(first)];
    while (taken.has(want)) want += 1;
    taken.add(want); lane[i] = want;
  });
  const x = (i) => 10 + lane[i] * (W + GX), y = (i) => 10 + depth[i] * (H + GY);
  const s = svg("svg", { width: Math.max(...D.nodes.map((_, i) => x(i))) + W + 20, height: Math.max(...D.nodes.map((_, i) => y(i))) + H + 20 });
  D.nodes.forEach((n, i) => n.inputs.forEach((v) => {
    if (!maker.has(v)) return;
    const j = maker.get(v), [x1, y1, x2, y2] = [x(j) + W / 2, y(j) + H, x(i) + W / 2, y(i)];
    s.append(svg("path", { class: "edge", d: `M${x1} ${y1} C${x1} ${y1 + GY} ${x2} ${y2 - GY} ${x2} ${y2}` }));
  }));
  let chosen = null;
  D.nodes.forEach((n, i) => {
    const g = svg("g", { class: "node" + (n.npu ? "" : " host"), onclick: () => { if (chosen) chosen.classList.remove("on"); chosen = g; g.classList.add("on"); right.replaceChildren(...nodePanel(n)); } },
      svg("rect", { x: x(i), y: y(i), width: W, height: H, rx: 4 }),
      svg("text", { x: x(i) + 8, y: y(i) + 17 }, n.op + (has(n.sqnr) ? `  ${n.sqnr.toFixed(0)} dB` : "")), svg("title", {}, n.name));
    s.append(g);
  });
  $("graph").append(el("div", { class: "legend" }, el("span", {}, el("i", { style: "border:1px solid var(--a)" }), "NPU"), el("span", {}, el("i", { style: "border:1px dashed var(--b)" }), "host")),
    el("div", { class: "split" }, el("div", { class: "left" }, s), right));
}

// The tensor to look at first: the most pressing advice, else the lowest SQNR.
const pressing = (t) => (t.suggestions && t.suggestions.length ? 1000 * t.suggestions[0][2] : 0) - (has(t.sqnr) ? t.sqnr : 500);

function tensors() {
  const right = el("div", { class: "right" }, el("p", { class: "soft" }, "Click a tensor for its histogram."));
  const rows = D.tensors.map((t) => ({ ...t, size: t.shape.join("x"), lo: t.threshold && t.threshold[0], hi: t.threshold && t.threshold[1], advice: (t.suggestions || []).map(([kind]) => kind).join(", ") }));
  const columns = [["tensor", "id", null, "text"], ["shape", "size"], ["stored as", "dtype"], ["scale", "scale"], ["zero", "zero_point"], ["low", "lo"], ["high", "hi"], ["method", "method"],
    ["SQNR dB", "sqnr", (v) => (has(v) ? v.toFixed(1) : ""), "", Math.max(1, ...rows.map((r) => r.sqnr || 0))], ["look at", "advice", null, "text"]];
  const first = rows.reduce((a, b) => (pressing(b) > pressing(a) ? b : a), rows[0]);
  if (first) right.replaceChildren(...tensorPanel(first));
  $("tensors").append(el("div", { class: "split" }, el("div", { class: "left" }, table(columns, rows, (t) => right.replaceChildren(...tensorPanel(t)))), right));
}

function suggestions() {
  const right = el("div", { class: "right" }, el("p", { class: "soft" }, "Click a row for its tensor.")), box = $("suggestions");
  const rows = D.tensors.flatMap((t) => (t.suggestions || []).map(([kind, text, weight]) => ({ t, id: t.id, kind, text, weight }))).sort((a, b) => b.weight - a.weight);
  if (!rows.length) { box.append(el("p", { class: "soft" }, "Nothing stands out in the statistics of any tensor.")); return; }
  right.replaceChildren(...tensorPanel(rows[0].t));
  const columns = [["tensor", "id", null, "text"], ["what", "kind", null, "text"], ["why, and what to try", "text", null, "long"]];
  box.append(el("div", { class: "split" }, el("div", { class: "left" }, table(columns, rows, (r) => right.replaceChildren(...tensorPanel(r.t)))), right));
}

function timeline() {
  const T = D.timeline, box = $("timeline");
  if (!T.queues.length) { box.append(el("p", { class: "soft" }, "no commands ran on the NPU")); return; }
  const W = 1100, ROW = 26, L = 80, canvas = el("canvas", { width: W, height: T.queues.length * ROW + 24 }), line = el("p", { class: "soft" }, "Wheel zooms, drag moves, hover names the layer.");
  const ink = canvas.getContext("2d"), style = (v) => getComputedStyle(document.documentElement).getPropertyValue(v.slice(4, -1)) || v;
  let from = 0, to = T.cycles;
  const draw = () => {
    ink.clearRect(0, 0, W, canvas.height); ink.font = "11px system-ui"; ink.fillStyle = style("var(--soft)");
    T.queues.forEach((q, r) => ink.fillText(q, 2, r * ROW + 16));
    for (const [r, start, end] of T.events) {
      if (end < from || start > to) continue;
      const a = L + Math.max(0, (start - from) / (to - from)) * (W - L), b = L + Math.min(1, (end - from) / (to - from)) * (W - L);
      ink.fillStyle = style(KINDS[T.queues[r].replace(/[0-9]+$/, "").replace(/^.*\./, "")] || "var(--a)"); ink.fillRect(a, r * ROW + 4, Math.max(b - a, 0.7), ROW - 8);
    }
    ink.fillStyle = style("var(--soft)");
    for (let k = 0; k <= 4; k++) ink.fillText(num(Math.round(from + (to - from) * k / 4)), L + (W - L - 60) * k / 4, canvas.height - 6);
  };
  const at = (e) => from + (e.offsetX * W / canvas.clientWidth - L) / (W - L) * (to - from);
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); const c = at(e), f = e.deltaY < 0 ? 0.8 : 1.25; from = Math.max(0, c - (c - from) * f); to = Math.min(T.cycles, c + (to - c) * f); draw(); });
  let grip = null;
  canvas.addEventListener("mousedown", (e) => { grip = at(e); }); window.addEventListener("mouseup", () => { grip = null; });
  canvas.addEventListener("mousemove", (e) => {
    const c = at(e), row = Math.floor(e.offsetY / ROW);
    if (grip !== null) { const d = Math.min(Math.max(grip - c, -from), T.cycles - to); from += d; to += d; draw(); return; }
    const hit = T.events.find(([r, s, f]) => r === row && s <= c && c < f);
    line.textContent = hit ? `${D.nodes[hit[3]] ? D.nodes[hit[3]].name : "?"}: ${hit[4]}, cycles ${num(hit[1])} to ${num(hit[2])}` : "Wheel zooms, drag moves, hover names the layer.";
  });
  box.append(el("h2", {}, `Timeline: ${num(T.cycles)} cycles`), el("div", { class: "legend" }, ...Object.entries(KINDS).map(([k, c]) => el("span", {}, el("i", { style: `background:${c}` }), k))), el("div", { class: "scroll" }, canvas), line);
  if (T.shortened) box.append(el("p", { class: "soft" }, T.shortened));
  draw();
}

function memory() {
  const M = D.memory, box = $("memory"), W = 1000, H = 320;
  box.append(facts([["weights and tables", bytes(M.const_bytes)], ["activations in external memory", bytes(M.data_bytes)], ["lower bound of that", bytes(M.bound_bytes)], ["local memory", bytes(M.local_bytes)], ["local memory in use, at most", bytes(M.local_used)]]));
  if (!M.live.length || !M.data_bytes) return;
  const last = Math.max(...M.live.map((v) => v.last)) + 1, s = svg("svg", { width: W, height: H + 30 });
  M.live.forEach((v, i) => s.append(svg("rect", { x: v.first / last * W, y: v.address / M.data_bytes * H, width: Math.max((v.last + 1 - v.first) / last * W, 1), height: Math.max(v.size / M.data_bytes * H, 1),
    fill: `hsl(${(i * 47) % 360} 45% 60%)`, stroke: "var(--paper)", "stroke-width": 0.5 }, svg("title", {}, `${v.id}: ${bytes(v.size)} at ${v.address}`))));
  s.append(svg("text", { x: 0, y: H + 18, class: "soft" }, "steps of the program, left to right; addresses, top to bottom"));
  box.append(el("h2", {}, "External memory: who lives where, and when"), el("div", { class: "scroll" }, s));
}

function notes() {
  const box = $("notes");
  for (const [title, columns, rows] of D.notes) {
    box.append(el("h2", {}, title));
    box.append(rows.length ? table(columns.map((c, i) => [c, i, null, "text"]), rows) : el("p", { class: "soft" }, "none"));
  }
}

function build() {
  const box = $("build"), picture = el("img", { src: "graph.svg", alt: "the stages of the build, with what ran and what was in the cache" });
  picture.addEventListener("error", () => picture.replaceWith(el("p", { class: "soft" }, "graph.svg, which a build writes beside this page, is not here.")));
  box.append(el("h2", {}, "The stages of the last build: what ran, and what was in the cache"), el("div", { class: "scroll" }, picture));
}

// A build writes out/NAME/report.html: the folder is the recipe's name, which the page itself cannot know.
const folder = /\/([^/]+)\/report\.html$/.exec(location.pathname);
$("title").textContent = document.title = (folder ? decodeURIComponent(folder[1]) + " · " : "") + D.title;
$("warnings").append(...D.warnings.map((w) => el("p", { class: "warning" }, el("b", {}, w.message), w.hint ? " Try: " + w.hint : "")));
$("tiles").append(...D.tiles.map(([label, value]) => el("div", { class: "tile" }, el("b", {}, typeof value === "number" ? num(value) : value), el("span", {}, label))));
const TABS = { layers: "Layers", graph: "Graph", tensors: "Tensors", suggestions: "Suggestions", timeline: "Timeline", memory: "Memory", notes: "Placement and notes", build: "Build" };
const show = (id) => { for (const k of Object.keys(TABS)) { $(k).classList.toggle("on", k === id); $("tab-" + k).classList.toggle("on", k === id); } };
$("tabs").append(...Object.entries(TABS).map(([id, label]) => el("button", { id: "tab-" + id, onclick: () => show(id) }, label)));
layers(); graph(); tensors(); suggestions(); timeline(); memory(); notes(); build();
const wanted = location.hash.replace("#show=", "");   // no element has that id, so the page does not scroll
show(TABS[wanted] ? wanted : "layers");
