"use strict";
// Which boxes the network page draws: layers, and every loop as one box, under which its layers stand once
// it is open. `takes` and `gives`: the values by which boxes are joined.
function shownBoxes(found, open) {
  const loops = new Map((found.loops || []).map((one) => [one.loop, one])),
    seen = new Set(),
    boxes = [];
  const own = new Map([...loops.keys()].map((name) => [name, new Set()]));
  for (const layer of found.layers)
    if (loops.has(layer.loop)) layer.outputs.forEach((value) => own.get(layer.loop).add(value));
  for (const layer of found.layers) {
    const loop = loops.get(layer.loop);
    if (!loop) {
      boxes.push({ ...layer, takes: layer.inputs, gives: layer.outputs });
      continue;
    }
    const opened = open.has(loop.loop);
    if (!seen.has(loop.loop)) {
      seen.add(loop.loop);
      boxes.push({ ...loop, opened, takes: loop.inputs, gives: opened ? [loop.name] : loop.outputs });
    }
    if (opened) {
      const inner = layer.inputs.filter((value) => own.get(loop.loop).has(value));
      boxes.push({ ...layer, takes: inner.length ? inner : [loop.name], gives: layer.outputs });
    }
  }
  return boxes;
}

// The loop that a wanted layer stands in, where it is drawn only once that is open.
const loopOf = (found, wanted) => found.layers.find((row) => row.name === wanted)?.loop;

// Whether a box is, or a closed loop holds, what somebody looks for.
const boxFits = (row, wanted) =>
  [`${row.op} ${row.name}`, ...(row.layers || [])].some((text) => text.toLowerCase().includes(wanted));
